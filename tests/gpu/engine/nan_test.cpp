// The replacement's kernels make the GPU's NaN, so that a test that compares its bytes with the
// host's fails here too.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "comm/cuda/ordered_sum.h"
#include "tests/gpu/engine/device_memory.h"
#include "tests/gpu/engine/elements.h"
#include "zero/base/gpu.h"

using namespace zero;

namespace {

// Checks the sum of infinity and its opposite, by the GPU's kernel and by the host.
template <class T>
void check_sum(std::uint32_t expected) {
  constexpr std::int64_t count = 16;
  const auto device = create_gpu(0);
  const auto stream = device->create_stream(Device::Role::compute);
  std::vector<T> sources(2 * count, from_float<T>(std::bit_cast<float>(0x7f800000u)));
  for (std::int64_t i = 0; i < count; ++i)
    sources[static_cast<std::size_t>(i)] = from_float<T>(std::bit_cast<float>(0xff800000u));
  gpu::OnDevice<T> from(*device, *stream, sources), to(*device, *stream, std::vector<T>(count));
  stream->enqueue([&](Stream native) {
    comm::cuda::launch_ordered_sum(
        {from.data(), count, 2, comm::ReduceGroups(1), to.data(), count, dtype_of<T>::value},
        native);
  });
  const std::vector<T> sums = to.read();
  for (const T& sum : sums) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &sum, sizeof sum);
    CHECK(bits == expected);
  }
}

}  // namespace

TEST_CASE("a NaN that a kernel makes has the GPU's bits") {
  check_sum<float>(0x7fffffffu);
  check_sum<bf16>(0x7fffu);
  check_sum<fp16>(0x7fffu);
}
