// The block store alone: a read returns the written data, or a named error; fallbacks are reported.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "offload/block_store.h"
#include "offload/io_hook.h"
#include "tests/offload/disk_directory.h"
#include "zero/base/error.h"

using namespace zero::offload;
using namespace std::chrono_literals;

namespace {

// Aligned memory.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes)
      : size_(static_cast<std::size_t>(aligned(bytes))),
        data_(static_cast<std::byte*>(std::aligned_alloc(alignment_bytes, size_))) {
    std::memset(data_, 0, size_);
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  std::byte* data() { return data_; }
  std::span<std::byte> span() { return {data_, size_}; }
  void fill(std::uint64_t seed) {
    std::mt19937_64 draw(seed);
    for (std::byte& byte : span()) byte = static_cast<std::byte>(draw());
  }
  bool operator==(const Buffer& other) const {
    return size_ == other.size_ && std::memcmp(data_, other.data_, size_) == 0;
  }

 private:
  std::size_t size_;
  std::byte* data_;
};

// Answers by operation and by the number of calls so far; ends with the block.
class Hooked {
 public:
  explicit Hooked(IoHook hook) { set_io_hook(std::move(hook)); }
  ~Hooked() { set_io_hook({}); }
};

constexpr std::int64_t extent_bytes = 300'000;  // four blocks and some bytes

// Two extents, written once.
struct Stored {
  explicit Stored(StoreOptions options = {}) : first(extent_bytes), second(extent_bytes) {
    if (options.directory.empty()) options.directory = directory.path();
    options.block_bytes = 65536;
    options.depth = 3;
    store = std::make_unique<BlockStore>(options);
    one = store->add("exp_avg of unit a", extent_bytes);
    two = store->add("exp_avg_sq of unit b", extent_bytes);
    store->open();
    channel = store->create_channel({first.span(), second.span()});
    first.fill(1);
    second.fill(2);
  }
  void write() {
    const Transfer transfers[] = {{Direction::write, one, first.data()},
                                  {Direction::write, two, second.data()}};
    channel->transfer(transfers);
  }
  bool reads_back() {
    Buffer a(extent_bytes), b(extent_bytes);
    const Transfer transfers[] = {{Direction::read, two, b.data()},
                                  {Direction::read, one, a.data()}};
    channel->transfer(transfers);
    return a == first && b == second;
  }

  DiskDirectory directory;
  Buffer first, second;
  std::unique_ptr<BlockStore> store;
  std::unique_ptr<BlockStore::Channel> channel;
  int one = 0, two = 0;
};

template <class Error>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another kind of error: ") + error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool says(const BlockStore& store, const std::string& part) {
  for (const std::string& notice : store.notices())
    if (contains(notice, part)) return true;
  return false;
}

IoHook nth(IoOp op, int n, int answer) {
  return [=, count = std::make_shared<std::atomic<int>>(0)](const IoEvent& event) {
    return event.op == op && (*count)++ == n ? answer : 0;
  };
}

}  // namespace

TEST_CASE("reads return the written data, by every kind of queue and file") {
  const std::map<std::string, std::pair<IoOp, int>> lacking = {
      {"nothing", {IoOp::create, 0}},
      {"uring", {IoOp::set_up_uring, EPERM}},
      {"registration", {IoOp::register_buffers, ENOMEM}},
      {"O_DIRECT", {IoOp::open_direct, EINVAL}},
      {"O_TMPFILE", {IoOp::create, EOPNOTSUPP}},
      {"fallocate", {IoOp::reserve, EOPNOTSUPP}}};
  for (const auto& [what, failing] : lacking) {
    CAPTURE(what);
    const Hooked hook(
        [&](const IoEvent& event) { return event.op == failing.first ? failing.second : 0; });
    Stored stored;
    CHECK(stored.store->bytes() == 2 * aligned(extent_bytes));
    for (std::uint64_t round = 0; round < 3; ++round) {
      stored.first.fill(round);
      stored.write();
      CHECK(stored.reads_back());
    }
    const ChannelUse use = stored.channel->use();
    CHECK(use.bytes_read == 3 * stored.store->bytes());
    CHECK(use.bytes_written == 3 * stored.store->bytes());
    CHECK(std::filesystem::is_empty(stored.directory.path()));
    if (what == "uring") {
      CHECK(contains(stored.channel->kind(), "3 POSIX threads"));
      CHECK(says(*stored.store, "io_uring is not available"));
    }
    if (what == "registration") CHECK(says(*stored.store, "cannot be registered"));
    if (what == "O_DIRECT") CHECK(says(*stored.store, "no O_DIRECT"));
    if (what == "nothing") CHECK(stored.store->notices().empty());
  }
}

TEST_CASE("blocks never written read as zeros, without a request") {
  Stored stored;
  Buffer read(extent_bytes), zeros(extent_bytes);
  read.fill(3);
  const Transfer transfer{Direction::read, stored.one, read.data()};
  stored.channel->transfer({&transfer, 1});
  CHECK(read == zeros);
  CHECK(stored.channel->use().bytes_read == 0);
}

TEST_CASE("short transfers, EAGAIN and EINTR are gone on with, at every request") {
  for (const IoOp op : {IoOp::read, IoOp::write})
    for (const int answer : {io_half, EAGAIN, EINTR})
      for (int n = 0; n < 11; ++n) {
        const Hooked hook(nth(op, n, answer));
        Stored stored;
        stored.write();
        CHECK(stored.reads_back());
      }
  const Hooked hook([](const IoEvent& event) {
    return event.op == IoOp::read || event.op == IoOp::write
               ? (event.data.size() > 8192 ? io_half : 0)
               : 0;
  });
  Stored stored;
  stored.write();
  CHECK(stored.reads_back());
}

TEST_CASE("requests may end in any order") {
  for (const int uring : {0, EPERM})
    for (unsigned seed = 0; seed < 6; ++seed) {
      const Hooked hook([=, draw = std::mt19937(seed)](const IoEvent& event) mutable {
        if (event.op == IoOp::set_up_uring) return uring;
        const bool moves = event.op == IoOp::read || event.op == IoOp::write;
        return moves && draw() % 2 == 0 ? io_late : 0;
      });
      Stored stored;
      for (std::uint64_t round = 0; round < 3; ++round) {
        stored.second.fill(round);
        stored.write();
        CHECK(stored.reads_back());
      }
    }
}

TEST_CASE("EIO and ENOSPC at any request name array, block, offset and reason") {
  for (const int n : {0, 4, 9}) {
    const Hooked hook(nth(IoOp::write, n, ENOSPC));
    Stored stored;
    const std::string message = message_of<zero::OffloadError>([&] { stored.write(); });
    CHECK(contains(message, "write of block " + std::to_string(n % 5) + " of " +
                                (n < 5 ? "exp_avg of unit a" : "exp_avg_sq of unit b")));
    CHECK(contains(message, "No space left on device (errno 28)"));
    CHECK(contains(message, stored.directory.path()));
  }
  const Hooked hook(nth(IoOp::read, 2, EIO));
  Stored stored;
  stored.write();
  const std::string message = message_of<zero::OffloadError>([&] { stored.reads_back(); });
  CHECK(contains(message, "read of block 2 of exp_avg_sq of unit b (offset "));
  CHECK(contains(message, "errno 5"));
}

TEST_CASE("a flipped bit, a lost write and the content of another block are told apart") {
  {
    Stored stored;
    const Hooked hook([flipped = false](const IoEvent& event) mutable {
      if (event.op == IoOp::write && !flipped) event.data[77] ^= std::byte{4}, flipped = true;
      return 0;
    });
    stored.write();
    CHECK(contains(message_of<zero::OffloadError>([&] { stored.reads_back(); }),
                   "block 0 of exp_avg of unit a"));
  }
  {
    Stored stored;
    stored.write();
    stored.first.fill(8);
    const Hooked hook(nth(IoOp::write, 3, io_lost));
    stored.write();
    const std::string message = message_of<zero::OffloadError>([&] { stored.reads_back(); });
    CHECK(contains(message, "block 3 of exp_avg of unit a"));
    CHECK(contains(message, "still holds generation 1"));
  }
  {
    Stored stored;
    const Hooked hook([&](const IoEvent& event) {
      if (event.op == IoOp::write && event.data.data() == stored.second.data())
        std::memcpy(event.data.data(), stored.first.data(), event.data.size());
      return 0;
    });
    stored.write();
    CHECK(contains(message_of<zero::OffloadError>([&] { stored.reads_back(); }),
                   "block 0 of exp_avg_sq of unit b (offset 303104, 65536 bytes, file in " +
                       stored.directory.path() + "): it holds block 0 of exp_avg of unit a"));
  }
}

TEST_CASE("a request that never ends is a stall; slow ones are not") {
  StoreOptions options;
  options.time_limit = 100ms;
  {
    const Hooked hook(nth(IoOp::write, 4, io_never));
    Stored stored(options);
    CHECK(contains(message_of<zero::StalledError>([&] { stored.write(); }), "in 100 ms"));
  }
  // Reads that together take longer than the limit pass, since each makes progress. The limit is 1
  // s, because a busy disk alone does not reach that.
  options.time_limit = 1s;
  const Hooked hook([](const IoEvent& event) {
    if (event.op == IoOp::read) std::this_thread::sleep_for(200ms);
    return 0;
  });
  Stored stored(options);
  stored.write();
  CHECK(stored.reads_back());
}

TEST_CASE("directories that cannot serve are refused with the figures") {
  StoreOptions options;
  const auto message = [&] {
    return message_of<zero::ConfigError>([&] { Stored stored(options); });
  };
  options.directory = "/dev/shm";
  CHECK(contains(message(), "/dev/shm is on tmpfs, which is memory"));
  options.directory = "/nowhere/at/all";
  CHECK(contains(message(), "No such file or directory"));
  options.directory = "/dev/null";
  CHECK(contains(message(), "is no directory"));

  {
    const Hooked hook(nth(IoOp::create, 0, EMFILE));
    CHECK(contains(message_of<zero::TopologyError>([] { Stored stored; }), "(ulimit -n)"));
  }
  DiskDirectory directory;
  BlockStore store({directory.path()});
  store.add("too much", std::int64_t{1} << 42);
  const std::string full = message_of<zero::MemoryError>([&] { store.open(); });
  CHECK(contains(full, "cannot reserve 4096.00 GiB for offload in nvme_path " + directory.path()));
  CHECK(contains(full, "iB left: No space left on device"));
}

TEST_CASE("two channels move different extents at a time") {
  Stored stored;
  auto other = stored.store->create_channel();
  stored.write();
  std::thread reader([&] {
    for (int i = 0; i < 20; ++i) {
      Buffer read(extent_bytes);
      const Transfer transfer{Direction::read, stored.two, read.data()};
      other->transfer({&transfer, 1});
      CHECK(read == stored.second);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const Transfer transfer{Direction::write, stored.one, stored.first.data()};
    stored.channel->transfer({&transfer, 1});
  }
  reader.join();
  CHECK(stored.reads_back());
}
