#include <doctest/doctest.h>

#include <future>

#include "zero/base/cpu/worker_stream.h"
#include "zero/base/device_waits.h"
#include "zero/base/error.h"

using namespace zero;
using std::chrono::milliseconds;

TEST_CASE("a wait for a device ends at its limit with an error that names its subject") {
  DeviceWaits waits;
  waits.await([] { return true; });
  waits.describe(2, nullptr);
  waits.set_limit(milliseconds(20));
  waits.set_subject("reduce of unit h.3");
  CHECK_THROWS_WITH_AS(waits.await([] { return false; }),
                       doctest::Contains("rank 2: waited 0.02 s for the GPU, which was last given "
                                         "the reduce of unit h.3"),
                       StalledError);
  CHECK(waits.stalled());
  // Nothing waits any more, so a condition that holds already is no error.
  CHECK(waits.limit() == milliseconds(0));
  CHECK_NOTHROW(waits.await([] { return true; }));
  waits.set_limit(milliseconds(30));
  CHECK_FALSE(waits.stalled());
  CHECK(waits.limit() == milliseconds(30));
}

TEST_CASE("a wait throws the known cause of a device's delay instead") {
  DeviceWaits waits;
  waits.set_limit(milliseconds(1));
  waits.describe(0, [] { throw PeerFailed("rank 1: out of luck"); });
  CHECK_THROWS_WITH_AS(waits.await([] { return false; }), "rank 1: out of luck", PeerFailed);
}

TEST_CASE("a device's host thread has the limit for each piece of its work") {
  DeviceWaits waits;
  waits.set_limit(milliseconds(200));
  std::promise<void> gate;
  WorkerStream stream("a test", &waits);
  for (int i = 0; i < 6; ++i)
    stream.enqueue([](Stream) { std::this_thread::sleep_for(milliseconds(60)); });
  CHECK_NOTHROW(stream.synchronize());
  const auto event = stream.create_event();
  stream.enqueue([&](Stream) { gate.get_future().wait(); });
  stream.record(*event);
  CHECK_THROWS_AS(event->synchronize(), StalledError);
  CHECK_THROWS_AS(stream.synchronize(), StalledError);
  gate.set_value();
}
