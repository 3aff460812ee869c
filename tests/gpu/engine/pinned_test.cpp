// Refusals that only a replacement can produce.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>

#include "zero/base/arena.h"
#include "zero/base/error.h"
#include "zero/base/gpu.h"

using namespace zero;

TEST_CASE("pinned memory has the size that is asked for, or is refused with the figures") {
  const auto device = create_gpu(0);
  for (const std::int64_t bytes : {256, 4096, 1'000'192}) {
    const Arena arena = device->reserve_pinned(bytes, "a test");
    CHECK(arena.size() == bytes);
    for (std::int64_t at = 0; at < bytes; at += 255) CHECK(arena.data()[at] == std::byte{0});
  }
  CHECK(device->reserve_pinned(0, "a test").size() == 0);
  // The replacement's limit.
  CHECK_THROWS_WITH_AS(device->reserve_pinned(std::int64_t{257} << 20, "a test"),
                       doctest::Contains("cannot pin 269484032 bytes for a test: "), MemoryError);
  CHECK_THROWS_WITH_AS(device->reserve_pinned(std::int64_t{257} << 20, "a test"),
                       doctest::Contains("(ulimit -l), and this host has "), MemoryError);
  CHECK_THROWS_WITH_AS(device->reserve_pinned(std::int64_t{1} << 46, "a test"),
                       doctest::Contains("ZERO_AVAILABLE_GIB"), MemoryError);
  CHECK_NOTHROW(device->reserve_pinned(4096, "a test"));
}

TEST_CASE("if CUDA refuses to register memory, it allocates it") {
  const auto device = create_gpu(0);
  refuse_registration(true);
  {
    const Arena arena = device->reserve_pinned(4096, "a test");
    CHECK(arena.size() == 4096);
    for (std::int64_t at = 0; at < 4096; ++at) REQUIRE(arena.data()[at] == std::byte{0});
    std::memset(arena.data(), 1, 4096);
  }
  CHECK_THROWS_WITH_AS(device->reserve_pinned(std::int64_t{257} << 20, "a test"),
                       doctest::Contains("cudaHostAlloc: "), MemoryError);
  refuse_registration(false);
}

TEST_CASE("the environment overrides Linux's figure of free memory") {
  const auto device = create_gpu(0);
  setenv("ZERO_AVAILABLE_GIB", "0.001", 1);
  CHECK_THROWS_WITH_AS(device->reserve_pinned(4 << 20, "a test"),
                       doctest::Contains("this host has 1.02 MiB left (ZERO_AVAILABLE_GIB "),
                       MemoryError);
  setenv("ZERO_AVAILABLE_GIB", "much", 1);
  CHECK_THROWS_WITH_AS(device->reserve_pinned(4096, "a test"),
                       doctest::Contains("ZERO_AVAILABLE_GIB is \"much\""), ConfigError);
  setenv("ZERO_AVAILABLE_GIB", "900000", 1);
  CHECK(available_memory() > std::int64_t{1} << 40);
  unsetenv("ZERO_AVAILABLE_GIB");
}

TEST_CASE("a driver that is too old is named with the required version") {
  CHECK_FALSE(driver_is_too_old());
  use_old_driver(true);
  CHECK(gpu_count() == 0);
  CHECK(driver_is_too_old());
  CHECK_THROWS_WITH_AS(create_gpu(0),
                       "device cuda: the NVIDIA driver of this machine is for CUDA 12.4, and this "
                       "program needs CUDA 13.0: install driver 580 or newer, or use device cpu",
                       TopologyError);
  use_old_driver(false);
  CHECK_NOTHROW(create_gpu(0));
}
