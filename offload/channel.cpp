#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>

#include "offload/block_store.h"
#include "offload/io_hook.h"
#include "zero/base/error.h"

namespace zero::offload {

namespace {

// Limit of attempts, 1 ms apart, of a request that the kernel rejects with EAGAIN.
constexpr int most_attempts = 10'000;

std::int64_t nanoseconds_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Busy {
 public:
  explicit Busy(std::atomic<std::int64_t>& total) : total_(total) { total_ -= nanoseconds_now(); }
  ~Busy() { total_ += nanoseconds_now(); }
  Busy(const Busy&) = delete;

 private:
  std::atomic<std::int64_t>& total_;
};

std::uint64_t checksum_of(std::span<const std::byte> data) {
  return XXH3_64bits(data.data(), data.size());
}

}  // namespace

BlockStore::Channel::Channel(BlockStore& store, std::vector<std::span<std::byte>> buffers)
    : store_(store), moves_(store.options_.depth) {
  std::vector<std::string> notices;
  const QueueOptions options{store.file_->descriptor(), store.options_.depth, std::move(buffers)};
  queue_ = create_uring_queue(options, notices);
  if (!queue_) queue_ = create_thread_queue(options);
  store.add_notices(notices);
  free_.resize(moves_.size());
  std::iota(free_.begin(), free_.end(), std::size_t{0});
}

void BlockStore::Channel::transfer(std::span<const Transfer> transfers) {
  const Busy busy(busy_);
  try {
    for (const Transfer& transfer : transfers) {
      const StoredArray& array = store_.arrays_[transfer.array];
      const std::int64_t block_bytes = store_.options_.block_bytes;
      const std::int64_t end = transfer.bytes < 0 ? array.bytes : transfer.begin + transfer.bytes;
      for (std::int64_t at = transfer.begin; at < end; at += block_bytes) {
        const auto size = static_cast<std::size_t>(std::min(block_bytes, end - at));
        start({transfer.direction,
               transfer.array,
               array.first_block + static_cast<std::size_t>(at / block_bytes),
               array.offset + at,
               {transfer.data + (at - transfer.begin), size}});
      }
    }
    while (free_.size() < moves_.size()) settle_one();
  } catch (...) {
    drain();
    throw;
  }
}

ChannelUse BlockStore::Channel::use() const {
  const std::int64_t busy = busy_;
  return {bytes_read_, bytes_written_, busy < 0 ? busy + nanoseconds_now() : busy};
}

void BlockStore::Channel::start(const Move& move) {
  if (move.direction == Direction::read && store_.blocks_[move.block].generation == 0) {
    std::memset(move.data.data(), 0, move.data.size());
    return;
  }
  while (free_.empty()) settle_one();
  const std::size_t slot = free_.back();
  free_.pop_back();
  moves_[slot] = move;
  // Earlier requests are in flight while the checksum is computed.
  if (move.direction == Direction::write) moves_[slot].checksum = checksum_of(move.data);
  submit(slot);
}

void BlockStore::Channel::submit(std::size_t slot) {
  const Move& move = moves_[slot];
  std::span<std::byte> rest = move.data.subspan(static_cast<std::size_t>(move.moved));
  const std::int64_t offset = move.offset + move.moved;
  const int answer =
      ask_io_hook({move.direction == Direction::read ? IoOp::read : IoOp::write, offset, rest});
  if (answer == io_never) return;
  if (answer > 0 || answer == io_lost) {
    made_up_.push_back({slot, answer > 0 ? -answer : static_cast<std::int64_t>(rest.size())});
    return;
  }
  if (answer == io_half) rest = rest.first(rest.size() / 2);
  const Request request{move.direction, offset, rest, slot};
  if (answer == io_late) return late_.push_back(request);
  hand_over(request);
}

void BlockStore::Channel::hand_over(const Request& request) {
  queue_->submit(request);
  ++under_way_;
}

Completion BlockStore::Channel::next_completion() {
  if (!made_up_.empty()) {
    const Completion completion = made_up_.back();
    made_up_.pop_back();
    return completion;
  }
  if (under_way_ == 0 && !late_.empty()) {
    hand_over(late_.back());
    late_.pop_back();
  }
  const auto completion = queue_->wait(store_.options_.time_limit);
  if (!completion)
    throw StalledError("offload: no request on the file in " + store_.options_.directory +
                       " has ended in " + std::to_string(store_.options_.time_limit.count()) +
                       " ms; check the disk");
  --under_way_;
  return *completion;
}

void BlockStore::Channel::settle_one() {
  const auto [slot, result] = next_completion();
  Move& move = moves_[slot];
  const bool again = result == -EAGAIN || result == -EINTR;
  if ((result <= 0 && !again) || move.attempts >= most_attempts)
    throw OffloadError(describe(move) + ": " +
                       (result == 0 ? "the file ends there"
                                    : std::strerror(static_cast<int>(-result)) +
                                          (" (errno " + std::to_string(-result) + ")")));
  if (again) {
    ++move.attempts;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return submit(slot);
  }
  const auto left = static_cast<std::int64_t>(move.data.size()) - move.moved;
  // O_DIRECT can continue only at an aligned offset.
  move.moved += result < left ? result / alignment_bytes * alignment_bytes : left;
  if (result < left) {
    ++move.attempts;
    return submit(slot);
  }
  finish(slot);
}

void BlockStore::Channel::finish(std::size_t slot) {
  const Move& move = moves_[slot];
  Block& block = store_.blocks_[move.block];
  const auto size = static_cast<std::int64_t>(move.data.size());
  if (move.direction == Direction::write) {
    const std::lock_guard lock(store_.recording_);
    block.checksum_before = block.checksum;
    block.checksum = move.checksum;
    ++block.generation;
    bytes_written_ += size;
  } else {
    const std::uint64_t found = checksum_of(move.data);
    if (found != block.checksum)
      throw OffloadError(describe(move) + ": " + store_.diagnose(move.block, found));
    bytes_read_ += size;
  }
  free_.push_back(slot);
}

// Waits for all requests, because the kernel may still write to the caller's buffers.
void BlockStore::Channel::drain() noexcept {
  try {
    for (; under_way_ > 0; --under_way_)
      if (!queue_->wait(store_.options_.time_limit)) return;
  } catch (const std::exception&) {
    // Only the first failure is reported.
  }
}

std::string BlockStore::Channel::describe(const Move& move) const {
  return std::string("offload: ") + (move.direction == Direction::read ? "read" : "write") +
         " of " + store_.describe(move.array, move.block) + " (offset " +
         std::to_string(move.offset) + ", " + std::to_string(move.data.size()) +
         " bytes, file in " + store_.options_.directory + ")";
}

}  // namespace zero::offload
