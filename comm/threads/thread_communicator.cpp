#include "comm/threads/thread_communicator.h"

#include <cstring>
#include <new>

namespace zero::comm {

std::shared_ptr<void> zeroed_pages(std::int64_t bytes) {
  constexpr std::align_val_t page{4096};
  void* memory = std::memset(::operator new(bytes, page), 0, bytes);
  return {memory, [](void* data) { ::operator delete(data, page); }};
}

ThreadBoard::ThreadBoard(int ranks, std::int64_t half_bytes, bool read_in_place)
    : memory_(zeroed_pages(Board::bytes_for(ranks, half_bytes))),
      board_(Board::create(memory_.get(), ranks, half_bytes)),
      read_in_place_(read_in_place) {}

ThreadCommunicator::ThreadCommunicator(Group group, std::shared_ptr<ControlPlane> plane,
                                       std::shared_ptr<const ThreadBoard> board)
    : DirectCommunicator(std::move(group), std::move(plane), board->board()),
      board_(std::move(board)) {}

Location ThreadCommunicator::locate(const void* data, std::int64_t) const {
  if (!board_->read_in_place()) return {Location::bounce, 0};
  return {0, reinterpret_cast<std::uintptr_t>(data)};
}

const std::byte* ThreadCommunicator::resolve(int, Location location) const {
  return reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(location.offset));
}

std::unique_ptr<Communicator> ThreadCommunicator::form(const Subgroup& part) {
  std::shared_ptr<const ThreadBoard> made;
  if (part.group.size() > 1 && part.group.rank == 0)
    made = std::make_shared<ThreadBoard>(part.group.size(), board_->board().half_bytes(),
                                         board_->read_in_place());
  const auto own = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&made));
  std::vector<std::int64_t> all(size());
  do_all_gather(&own, all.data(), 1, DType::int64, 1);
  const auto leader = static_cast<std::intptr_t>(all[part.leader()]);
  const auto board = *reinterpret_cast<const std::shared_ptr<const ThreadBoard>*>(leader);
  // The leader's pointer lives until everyone has copied it.
  do_barrier();
  if (!board) return nullptr;
  return std::make_unique<ThreadCommunicator>(part.group, plane(), board);
}

}  // namespace zero::comm
