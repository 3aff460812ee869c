// Faults of the disk under a running engine: a named error with code 19 (10 or 13 at start) on all
// ranks, or a printed fallback with the same bits.
#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "offload/io_hook.h"
#include "tests/offload/offload_support.h"

using namespace offload_support;
using zero::offload::IoEvent;
using zero::offload::IoOp;

namespace {

class Hooked {
 public:
  explicit Hooked(zero::offload::IoHook hook) { zero::offload::set_io_hook(std::move(hook)); }
  ~Hooked() { zero::offload::set_io_hook({}); }
};

struct Failure {
  int code = 0;
  std::string text;
};

Failure failure_of(int ranks, const zero::Config& config, const char* executor) {
  try {
    run(ranks, config, 4, executor);
  } catch (const zero::Error& error) {
    return {error.exit_code(), error.what()};
  }
  return {};
}

zero::offload::IoHook nth(IoOp op, int n, int answer) {
  return [=, count = std::make_shared<std::atomic<int>>(0)](const IoEvent& event) {
    return event.op == op && (*count)++ == n ? answer : 0;
  };
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("EIO and ENOSPC at any request end the engine with code 19") {
  const DiskDirectory directory;
  const zero::Config c =
      with_parameters(with_states(config(3), directory.path()), directory.path());
  for (const char* executor : {"inline", "worker"})
    for (const auto& [op, error] :
         {std::pair{IoOp::read, EIO}, {IoOp::write, EIO}, {IoOp::write, ENOSPC}})
      for (const int n : {0, 7, 60, 200}) {
        const Hooked hook(nth(op, n, error));
        const Failure failure = failure_of(2, c, executor);
        CAPTURE(n);
        CHECK(failure.code == 19);
        CHECK(contains(failure.text,
                       op == IoOp::read ? "offload: read of block" : "offload: write of block"));
        CHECK(contains(failure.text, "(errno " + std::to_string(error) + ")"));
      }
}

TEST_CASE("short transfers, EAGAIN and any order of requests change no bit") {
  const DiskDirectory directory;
  const zero::Config c =
      with_parameters(with_states(config(3, 2), directory.path()), directory.path());
  const toy::Trace expected = run(2, config(3, 2));
  for (const char* executor : {"inline", "worker"})
    for (const int uring : {0, EPERM}) {
      const auto count = std::make_shared<std::atomic<unsigned>>(0);
      const Hooked hook([=](const IoEvent& event) {
        if (event.op == IoOp::set_up_uring) return uring;
        if (event.op != IoOp::read && event.op != IoOp::write) return 0;
        const unsigned n = (*count)++ * 2654435761u >> 16;
        if (n % 64 == 0) return EAGAIN;  // costs a millisecond
        return n % 4 == 0 ? zero::offload::io_half : n % 4 == 1 ? zero::offload::io_late : 0;
      });
      CHECK(run(2, c, 4, executor) == expected);
    }
}

TEST_CASE("a directory that is deleted meanwhile takes nothing along") {
  const toy::Trace expected = run(2, config(3));
  const DiskDirectory directory;
  const zero::Config c =
      with_parameters(with_states(config(3), directory.path()), directory.path());
  const Hooked hook([&, count = std::make_shared<std::atomic<int>>(0)](const IoEvent& event) {
    if (event.op == IoOp::read && (*count)++ == 100) std::filesystem::remove(directory.path());
    return 0;
  });
  CHECK(run(2, c, 4, "worker") == expected);
  CHECK(!std::filesystem::exists(directory.path()));
}

TEST_CASE("a flipped bit and a lost write end the engine with code 19") {
  const DiskDirectory directory;
  const zero::Config c = with_states(config(2), directory.path());
  {
    const Hooked hook([count = std::make_shared<std::atomic<int>>(0)](const IoEvent& event) {
      if (event.op == IoOp::write && (*count)++ == 150) event.data[9] ^= std::byte{1};
      return 0;
    });
    const Failure failure = failure_of(2, c, "worker");
    CHECK(failure.code == 19);
    CHECK(contains(failure.text, "its checksum differs"));
  }
  const Hooked hook(nth(IoOp::write, 170, zero::offload::io_lost));
  const Failure failure = failure_of(2, c, "worker");
  CHECK(failure.code == 19);
  CHECK(contains(failure.text, "a write never reached the disk"));
}

TEST_CASE("a disk that stops answering is a stall, code 18") {
  const DiskDirectory directory;
  zero::Config c = with_states(config(2), directory.path());
  c.zero_core.time_limit_seconds = 0.5;
  const Hooked hook(nth(IoOp::read, 20, zero::offload::io_never));
  const Failure failure = failure_of(2, c, "worker");
  CHECK(failure.code == 18);
}

TEST_CASE("too little space is known at start, code 13; a bad directory too, code 10") {
  const DiskDirectory directory;
  {
    const Hooked hook(nth(IoOp::reserve, 1, ENOSPC));
    const Failure failure = failure_of(2, with_states(config(2), directory.path()), "worker");
    CHECK(failure.code == 13);
    CHECK(contains(failure.text, "for offload in nvme_path " + directory.path()));
  }
  const Failure in_memory = failure_of(2, with_states(config(2), "/dev/shm"), "worker");
  CHECK(in_memory.code == 10);
  CHECK(contains(in_memory.text, "tmpfs"));
  const Failure unnamed = failure_of(2, with_states(config(2), ""), "worker");
  CHECK(unnamed.code == 10);
  CHECK(contains(unnamed.text, "offload_optimizer.nvme_path must be given"));
  const Failure stage0 = failure_of(2, with_states(config(0), directory.path()), "worker");
  CHECK(stage0.code == 10);
  CHECK(contains(stage0.text, "needs stage 1, 2 or 3"));
}

TEST_CASE("optimizers that need more than elements are errors with nvme that name them, code 10") {
  const DiskDirectory directory;
  for (const char* type : {"Lamb", "Muon", "Adafactor"})
    for (zero::Config c :
         {with_states(config(2), directory.path()), with_parameters(config(3), directory.path())}) {
      c.optimizer.type = type;
      const Failure failure = failure_of(2, c, "inline");
      CHECK(failure.code == 10);
      CHECK(contains(failure.text, "optimizer " + std::string(type) +
                                       " cannot have its state or its parameters in a file"));
    }
}

TEST_CASE("every fallback gives the same bits") {
  const DiskDirectory directory;
  const toy::Trace expected = run(2, config(3));
  for (const auto& [op, error] : {std::pair{IoOp::set_up_uring, ENOSYS},
                                  {IoOp::register_buffers, ENOMEM},
                                  {IoOp::open_direct, EINVAL},
                                  {IoOp::create, EOPNOTSUPP}}) {
    const Hooked hook(
        [op = op, error = error](const IoEvent& event) { return event.op == op ? error : 0; });
    const zero::Config c =
        with_parameters(with_states(config(3), directory.path()), directory.path());
    CHECK(run(2, c, 4, "worker") == expected);
  }
}
