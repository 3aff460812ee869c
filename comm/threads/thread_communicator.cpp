#include "comm/threads/thread_communicator.h"

#include <cstring>
#include <new>
#include <optional>

namespace zero::comm {

std::shared_ptr<void> zeroed_pages(std::int64_t bytes) {
  constexpr std::align_val_t page{4096};
  void* memory = std::memset(::operator new(bytes, page), 0, bytes);
  return {memory, [](void* data) { ::operator delete(data, page); }};
}

Board create_thread_board(int ranks, std::int64_t half_bytes) {
  return Board::create(zeroed_pages(Board::bytes_for(ranks, half_bytes)), ranks, half_bytes);
}

std::unique_ptr<Communicator> ThreadCommunicator::form(const Subgroup& part) {
  std::optional<Board> made;
  if (part.group.size() > 1 && part.group.rank == 0)
    made = create_thread_board(part.group.size(), half_bytes());
  const auto own = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&made));
  std::vector<std::int64_t> all(size());
  do_all_gather(&own, all.data(), 1, DType::int64, 1);
  const auto leader = static_cast<std::intptr_t>(all[part.leader()]);
  const auto board = *reinterpret_cast<const std::optional<Board>*>(leader);
  // The leader's pointer stays valid until every rank has copied it.
  do_barrier();
  if (!board) return nullptr;
  return std::make_unique<ThreadCommunicator>(part.group, plane(), *board, !segments_.empty());
}

}  // namespace zero::comm
