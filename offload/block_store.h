// Offloaded state in a file: arrays, cut into blocks. Memory keeps the checksum and generation
// (number of writes) of every block, so that a flipped bit, a write that never reached the disk or
// the content of another block is detected by the next read.
//
// An array is contiguous in the file. Call add() for all arrays, then open(), which creates the
// file, then create_channel(). Several channels move arrays concurrently, one thread each; the
// caller must order accesses to the same array. Every completion is checked: a short transfer is
// continued, EAGAIN is retried, any other error throws OffloadError (StalledError if no request
// completes in time), and after that the channel must not be used again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "offload/block_file.h"
#include "offload/request_queue.h"

namespace zero::offload {

struct StoreOptions {
  std::string directory;
  std::int64_t block_bytes = 1 << 20;             // of a request; rounded up to alignment_bytes
  int depth = 8;                                  // requests in flight in a channel
  std::chrono::milliseconds time_limit{600'000};  // in which a request must complete
};

struct Transfer {
  Direction direction{};
  int array = 0;
  std::byte* data = nullptr;  // aligned, with aligned(the bytes to move) bytes
  // A piece of the array: from a multiple of the block size to another multiple, or to the end.
  std::int64_t begin = 0, bytes = -1;  // -1: to the end
};

// Totals since the start, including requests in flight. Busy is the time with requests in flight.
struct ChannelUse {
  std::int64_t bytes_read = 0, bytes_written = 0, busy_nanoseconds = 0;
};

class BlockStore {
 public:
  class Channel;

  explicit BlockStore(StoreOptions options);
  BlockStore(const BlockStore&) = delete;
  ~BlockStore();

  // Returns the array's number. The name is for messages.
  int add(std::string name, std::int64_t bytes);
  // Returns the size of the file, known before open().
  std::int64_t bytes() const { return file_bytes_; }
  void open();

  // `buffers`: memory that most transfers of this channel use, which io_uring registers.
  std::unique_ptr<Channel> create_channel(std::vector<std::span<std::byte>> buffers = {});
  // Notices of the file and of all channels so far, without repetition.
  const std::vector<std::string>& notices() const { return notices_; }
  const std::string& directory() const { return options_.directory; }
  std::int64_t block_bytes() const { return options_.block_bytes; }

 private:
  struct StoredArray {
    std::string name;
    std::int64_t offset = 0, bytes = 0;  // in the file, aligned
    std::size_t first_block = 0;
  };
  struct Block {
    std::uint64_t checksum = 0, checksum_before = 0;
    std::uint32_t generation = 0;  // 0: never written, reads as zeros
  };

  void add_notices(const std::vector<std::string>& more);
  std::string describe(int array, std::size_t block) const;
  // Explains why a block's content is not the last written; if the content is another block's,
  // names that block.
  std::string diagnose(std::size_t block, std::uint64_t found) const;

  StoreOptions options_;
  std::vector<StoredArray> arrays_;
  std::vector<Block> blocks_;
  mutable std::mutex recording_;  // diagnose() reads blocks that another channel may be writing
  std::int64_t file_bytes_ = 0;
  std::unique_ptr<BlockFile> file_;
  std::vector<std::string> notices_;
};

class BlockStore::Channel {
 public:
  // Returns when all transfers have ended. Verifies each block read, and records the checksum of
  // each block written.
  void transfer(std::span<const Transfer> transfers);
  std::string kind() const { return queue_->kind(); }
  // Thread-safe.
  ChannelUse use() const;

 private:
  friend class BlockStore;
  // A block in flight.
  struct Move {
    Direction direction{};
    int array = 0;
    std::size_t block = 0;
    std::int64_t offset = 0;  // in the file
    std::span<std::byte> data = {};
    std::int64_t moved = 0;
    std::uint64_t checksum = 0;
    int attempts = 0;
  };

  Channel(BlockStore& store, std::vector<std::span<std::byte>> buffers);
  void start(const Move& move);
  void submit(std::size_t slot);
  void hand_over(const Request& request);
  void settle_one();
  void finish(std::size_t slot);
  Completion next_completion();
  void drain() noexcept;
  std::string describe(const Move& move) const;

  BlockStore& store_;
  std::unique_ptr<RequestQueue> queue_;
  std::vector<Move> moves_;
  std::vector<std::size_t> free_;
  std::vector<Completion> made_up_;  // by a hook
  std::vector<Request> late_;        // delayed by a hook
  std::size_t under_way_ = 0;        // in the queue
  std::atomic<std::int64_t> bytes_read_ = 0, bytes_written_ = 0;
  // Nanoseconds; negative while requests are in flight, because the start time is subtracted.
  std::atomic<std::int64_t> busy_ = 0;
};

}  // namespace zero::offload
