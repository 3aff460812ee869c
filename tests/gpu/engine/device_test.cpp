#include <doctest/doctest.h>

#include <cstring>

#include "tests/gpu/engine/device_memory.h"
#include "zero/base/error.h"
#include "zero/base/gpu.h"

using namespace zero;

TEST_CASE("gpu: arenas are zeroed, copies and fills follow the stream") {
  const auto device = create_gpu(0);
  const auto stream = device->create_stream(Device::Role::compute);
  Arena arena = device->reserve(1 << 20, Arena::Sharing::private_memory, "a test");
  Arena pinned = device->reserve_pinned(1 << 20, "a test");
  CHECK(pinned.size() == 1 << 20);
  auto* data = static_cast<std::byte*>(arena.take(1 << 20));
  auto* host = static_cast<std::byte*>(pinned.take(1 << 20));
  std::memset(host, 1, 1 << 20);
  stream->enqueue([&](Stream s) {
    device->copy(host, data, 512, s);
    device->copy(data, host + 512, 512, s);
    device->fill_zero(data, 256, s);
    device->copy(host + 1024, data, 512, s);
  });
  stream->synchronize();
  CHECK(host[0] == std::byte{0});
  CHECK(host[511] == std::byte{0});
  CHECK(host[1024 + 255] == std::byte{0});
  CHECK(host[1024 + 256] == std::byte{1});
}

TEST_CASE("gpu: a timer has the time between its points once the stream has come past them") {
  const auto device = create_gpu(0);
  const auto stream = device->create_stream(Device::Role::copies);
  constexpr std::int64_t bytes = 1 << 22;
  Arena arena = device->reserve(bytes, Arena::Sharing::private_memory, "a test");
  Arena pinned = device->reserve_pinned(bytes, "a test");
  const auto timer = device->create_timer();
  REQUIRE(timer);
  for (int round = 0; round < 2; ++round) {
    stream->enqueue([&](Stream s) {
      timer->start(s);
      device->copy(pinned.data(), arena.data(), bytes, s);
      timer->stop(s);
    });
    stream->synchronize();
    REQUIRE(timer->nanoseconds());
    CHECK(*timer->nanoseconds() > 0);
  }
}

TEST_CASE("gpu: the host's work has its place in the order of a stream") {
  const auto device = create_gpu(0);
  const auto stream = device->create_stream(Device::Role::copies);
  constexpr std::int64_t bytes = 1 << 20;
  Arena arena = device->reserve(2 * bytes, Arena::Sharing::private_memory, "a test");
  Arena pinned = device->reserve_pinned(bytes, "a test");
  std::memset(pinned.data(), 1, bytes);
  std::byte found{};
  for (int round = 0; round < 3; ++round)
    stream->enqueue([&](Stream s) {
      device->copy(arena.data(), pinned.data(), bytes, s);
      device->copy(arena.data() + bytes, arena.data(), bytes, s);
      device->fill_zero(pinned.data(), bytes, s);
      device->copy(pinned.data(), arena.data() + bytes, bytes, s);
      device->call(
          [&] {
            found = pinned.data()[bytes - 1];
            for (std::int64_t at = 0; at < bytes; ++at)
              pinned.data()[at] = static_cast<std::byte>(2 * static_cast<int>(pinned.data()[at]));
          },
          s);
    });
  stream->synchronize();
  CHECK(found == std::byte{4});
  CHECK(pinned.data()[0] == std::byte{8});
  CHECK(pinned.data()[bytes - 1] == std::byte{8});
}

TEST_CASE("gpu: a worker's work has its place among the device's, again and again") {
  const auto device = create_gpu(0);
  const auto in = device->create_stream(Device::Role::copies);
  const auto out = device->create_stream(Device::Role::copies);
  const auto worker = device->create_worker("a test"), other = device->create_worker("another");
  const auto arrived = in->create_event(), copied = out->create_event();
  const auto doubled = worker->create_event(), checked = other->create_event();
  constexpr std::int64_t bytes = 1 << 20;
  Arena arena = device->reserve(bytes, Arena::Sharing::private_memory, "a test");
  Arena pinned = device->reserve_pinned(bytes, "a test");
  std::memset(pinned.data(), 1, bytes);
  int found = 0;
  for (int round = 0; round < 7; ++round) {
    in->wait(*checked);
    in->wait(*doubled);
    in->enqueue([&](Stream s) { device->copy(arena.data(), pinned.data(), bytes, s); });
    in->record(*arrived);
    out->wait(*arrived);
    out->enqueue([&](Stream s) {
      device->fill_zero(pinned.data(), bytes, s);
      device->copy(pinned.data(), arena.data(), bytes, s);
    });
    out->record(*copied);
    worker->wait(*copied);
    worker->enqueue([&](Stream) {
      for (std::int64_t at = 0; at < bytes; ++at)
        pinned.data()[at] = static_cast<std::byte>(2 * static_cast<int>(pinned.data()[at]));
    });
    worker->record(*doubled);
    other->wait(*doubled);
    other->enqueue(
        [&, round](Stream) { found += static_cast<int>(pinned.data()[bytes - 1]) == 2 << round; });
    other->record(*checked);
  }
  other->synchronize();
  CHECK(found == 7);
  CHECK(pinned.data()[0] == std::byte{128});
}

TEST_CASE("gpu: a worker that fails lets the device go on, and says why") {
  const auto device = create_gpu(0);
  const auto stream = device->create_stream(Device::Role::copies);
  const auto worker = device->create_worker("a test"), other = device->create_worker("another");
  const auto done = worker->create_event(), late = other->create_event();
  worker->enqueue([](Stream) { throw Error("it failed"); });
  worker->record(*done);
  other->wait(*done);
  other->record(*late);
  stream->wait(*done);
  stream->wait(*late);
  CHECK_NOTHROW(stream->synchronize());
  CHECK_THROWS_WITH(worker->synchronize(), "it failed");
  CHECK_THROWS_WITH(other->synchronize(), "it failed");
  CHECK_THROWS_WITH(worker->check(), "it failed");
  CHECK_THROWS_WITH(worker->enqueue([](Stream) {}), "it failed");
  worker->record(*done);
  stream->wait(*done);
  CHECK_NOTHROW(stream->synchronize());
}

TEST_CASE("gpu: a stream waits for the record of another") {
  const auto device = create_gpu(0);
  const auto compute = device->create_stream(Device::Role::compute);
  const auto communication = device->create_stream(Device::Role::communication);
  const auto event = compute->create_event();
  CHECK(event->complete());
  communication->wait(*event);
  gpu::OnDevice<float> from(*device, *compute, std::vector<float>(1 << 22, 3.f));
  gpu::OnDevice<float> to(*device, *compute, std::vector<float>(1 << 22, 0.f));
  gpu::OnDevice<float> last(*device, *compute, std::vector<float>(1 << 22, 0.f));
  constexpr std::int64_t bytes = (1 << 22) * 4;
  compute->enqueue([&](Stream s) { device->copy(to.data(), from.data(), bytes, s); });
  compute->record(*event);
  communication->wait(*event);
  communication->enqueue([&](Stream s) { device->copy(last.data(), to.data(), bytes, s); });
  communication->synchronize();
  CHECK(event->complete());
  CHECK(last.read() == std::vector<float>(1 << 22, 3.f));
}

TEST_CASE("gpu: too much memory is refused with the figures, and the GPU stays usable") {
  const auto device = create_gpu(0);
  CHECK_THROWS_AS(device->reserve(std::int64_t{1} << 46, Arena::Sharing::private_memory, "a test"),
                  MemoryError);
  CHECK_NOTHROW(device->reserve(1024, Arena::Sharing::private_memory, "a test"));
}

TEST_CASE("gpu: a borrowed stream is used, not destroyed; ranks on one GPU are seen to be") {
  const auto device = create_gpu(0);
  const auto stream = device->create_stream(Device::Role::compute);
  {
    const auto borrowed = device->borrow_stream(stream->native());
    CHECK(borrowed->native().handle == stream->native().handle);
  }
  CHECK_NOTHROW(stream->synchronize());
  CHECK(create_gpu(gpu_count())->identity() == device->identity());
  if (gpu_count() < 2) return;
  const auto other = create_gpu(1);
  CHECK(other->identity() != device->identity());
  CHECK_THROWS_AS(other->borrow_stream(stream->native()), UsageError);
}
