#include <doctest/doctest.h>

#include "comm/cuda/ordered_sum.h"
#include "comm/reduce.h"
#include "tests/gpu/engine/device_memory.h"
#include "tests/gpu/engine/elements.h"
#include "tests/optim/support.h"
#include "zero/base/gpu.h"

using namespace zero;
using namespace zero::optim::test;
using gpu::same_elements;

TEST_CASE("gpu: sums in rank order are the host's") {
  constexpr std::int64_t count = 1000, stride = 1024;
  const auto device = create_gpu(0);
  const auto stream = device->create_stream(Device::Role::compute);
  comm::ReduceGroups nested = 2;
  nested.sizes[1] = 4;
  for (const int sources : {1, 2, 3, 5, 8})
    for (const comm::ReduceGroups& group : {comm::ReduceGroups(1), comm::ReduceGroups(2), nested})
      for (const DType dtype : floating) {
        CAPTURE(sources);
        CAPTURE(comm::text_of(group));
        CAPTURE(name_of(dtype));
        const auto all = encode(random_floats(sources * stride, Numbers::wild, 7), dtype);
        const auto bytes = static_cast<std::size_t>(count * size_of(dtype));
        gpu::OnDevice<unsigned char> from(*device, *stream, all);
        gpu::OnDevice<unsigned char> to(*device, *stream, std::vector<unsigned char>(bytes));
        stream->enqueue([&](Stream native) {
          comm::cuda::launch_ordered_sum(
              {from.data(), stride, sources, group, to.data(), count, dtype}, native);
        });
        std::vector<const void*> parts;
        for (int s = 0; s < sources; ++s) parts.push_back(all.data() + s * stride * size_of(dtype));
        std::vector<unsigned char> expected(bytes);
        comm::ordered_sum(parts, group, expected.data(), count, dtype);
        CHECK(same_elements(to.read(), expected, dtype));
      }
}
