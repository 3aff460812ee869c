// The parts of zero/base for devices, as far as they can be tested on a machine without one.
#include <doctest/doctest.h>

#include <sched.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "zero/base/arena.h"
#include "zero/base/device.h"
#include "zero/base/error.h"
#include "zero/base/gpu.h"
#include "zero/base/numa.h"

using namespace zero;

TEST_CASE("an arena over a device's memory cuts it up and gives it back once") {
  alignas(256) static std::byte memory[1024];
  int given_back = 0;
  {
    Arena arena(std::shared_ptr<void>(memory, [&](void*) { ++given_back; }), 1024);
    CHECK(arena.size() == 1024);
    CHECK(arena.take(100) == memory);
    CHECK(arena.take(100) == memory + 256);
    Arena moved = std::move(arena);
    CHECK(arena.size() == 0);
    CHECK_THROWS_AS(moved.take(1000), std::logic_error);
    CHECK(given_back == 0);
  }
  CHECK(given_back == 1);
}

TEST_CASE("the host as a device") {
  Device& host = host_device();
  CHECK(host.is_host());
  Arena arena = host.reserve(512, Arena::Sharing::private_memory, "a test");
  auto* data = static_cast<char*>(arena.take(512));
  host.copy(data, "abcd", 4, {});
  host.fill_zero(data + 1, 2, {});
  CHECK(std::memcmp(data, "a\0\0d", 4) == 0);
  CHECK(host.create_stream(Device::Role::compute)->kind() == std::string("inline"));
  int stream = 0;
  CHECK_THROWS_AS(host.borrow_stream({&stream}), UsageError);
}

TEST_CASE("an unknown or refused NUMA node is reported, not fatal") {
  CHECK(numa_node_of_pci("00000000:ff:1f.7") == -1);
  const std::size_t bytes = 1 << 16;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  CHECK(prefer_numa_node(memory, bytes, -1) ==
        "the machine does not say which NUMA node it belongs to");
  CHECK(prefer_numa_node(memory, bytes, 63).find("mbind to NUMA node 63: ") == 0);
  CHECK_FALSE(runs_beyond_numa_node(4000));
  const std::string of_first = prefer_numa_node(memory, bytes, 0);
  CHECK((of_first.empty() || of_first.find("mbind to NUMA node 0: ") == 0));
  std::memset(memory, 1, bytes);
  munmap(memory, bytes);
}

TEST_CASE("a process that may use a cpu of another NUMA node runs beyond the first") {
  std::ifstream file("/sys/devices/system/node/node0/cpulist");
  int first = -1;
  if (!(file >> first)) return;
  std::thread([first] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(first), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return;
    CHECK_FALSE(runs_beyond_numa_node(0));
    std::ifstream second("/sys/devices/system/node/node1/cpulist");
    if (second) CHECK(runs_beyond_numa_node(1));
  }).join();
}

TEST_CASE("a machine or a build without a GPU says so in one line") {
  if (gpu_count() > 0) return;
  try {
    create_gpu(0);
    FAIL("there is none");
  } catch (const TopologyError& error) {
    CHECK(error.exit_code() == 11);
    CHECK(std::string(error.what()).find("device cuda: ") == 0);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
  }
}
