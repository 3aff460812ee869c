// Compares the GPU's codecs with the host's, bit by bit.
#include <doctest/doctest.h>

#include <cstring>

#include "comm/wire/device_codec.h"
#include "comm/wire/layout.h"
#include "tests/comm/wire/vectors.h"
#include "tests/gpu/engine/device_memory.h"
#include "tests/gpu/engine/elements.h"
#include "zero/base/gpu.h"

namespace zero::comm::wire::testing {
namespace {

using gpu::same_elements;

struct Gpu {
  std::unique_ptr<Device> device = create_gpu(0);
  std::unique_ptr<ExecutionStream> stream = device->create_stream(Device::Role::compute);
  const DeviceCodec* codec = &cuda_codec();

  gpu::OnDevice<unsigned char> put(const Bytes& bytes) { return {*device, *stream, bytes}; }
  void run(const std::function<void(Stream)>& work) { stream->enqueue(work); }
};

void compare(Gpu& g, const Codec& codec, const Named& input, DType dtype) {
  INFO(name_of(codec.format) << ", blocks of " << codec.block << ", " << name_of(dtype) << ", "
                             << input.values.size() << " elements: " << input.name);
  const auto count = std::ssize(input.values);
  const Bytes elements = optim::test::encode(input.values, dtype);
  const Bytes expected = encoded(codec, elements, dtype, count);
  auto from = g.put(elements), to = g.put(elements), sent = g.put(Bytes(expected.size(), 0xee));
  g.run([&](Stream stream) {
    g.codec->encode(codec, {from.data(), dtype, count}, sent.data(), stream);
    g.codec->decode(codec, sent.data(), count, to.data(), dtype, stream);
  });
  CHECK(sent.read() == expected);
  Bytes back(elements.size());
  decode(codec, expected.data(), count, back.data(), dtype);
  CHECK(same_elements(to.read(), back, dtype));
  ErrorSums errors;
  Bytes sums(sizeof errors);
  auto measured = g.put(sums), parts = g.put(Bytes(most_error_parts * sizeof errors, 0xee));
  Bytes again(expected.size());
  g.run([&](Stream stream) {
    g.codec->encode(codec,
                    {from.data(),
                     dtype,
                     count,
                     {reinterpret_cast<ErrorSums*>(measured.data()),
                      reinterpret_cast<ErrorSums*>(parts.data())}},
                    sent.data(), stream);
  });
  CHECK(sent.read() == expected);
  if (codec.format == Format::none || input.name != "usual") return;
  encode(codec, {elements.data(), dtype, count, {&errors}}, again.data());
  CHECK(again == expected);
  sums = measured.read();
  ErrorSums there;
  std::memcpy(&there, sums.data(), sizeof there);
  CHECK(there.difference == doctest::Approx(errors.difference).epsilon(1e-4));
  CHECK(there.values == doctest::Approx(errors.values).epsilon(1e-4));
}

void compare_sums(Gpu& g, const Codec& codec, DType dtype) {
  constexpr std::int64_t count = 4133;
  constexpr int sources = 5;
  Bytes all;
  for (int s = 0; s < sources; ++s) {
    const Bytes one = encoded(codec, random_floats(count, Numbers::usual, 20 + s));
    all.insert(all.end(), one.begin(), one.end());
  }
  const std::int64_t stride = std::ssize(all) / sources;
  const auto size = static_cast<std::size_t>(count * size_of(dtype));
  auto from = g.put(all), to = g.put(Bytes(size));
  for (const int group : {1, 2, 5}) {
    g.run([&](Stream stream) {
      g.codec->decode_sum(codec, {from.data(), stride, sources}, group, count, to.data(), dtype,
                          stream);
    });
    Bytes expected(size);
    decode_sum(codec, {all.data(), stride, sources}, group, count, expected.data(), dtype);
    CHECK(to.read() == expected);
  }
}

}  // namespace

TEST_CASE("gpu: wire formats have the bits of the host") {
  Gpu g;
  for (const Format format : all_formats)
    for (const DType dtype : floating) {
      for (const std::size_t count : {1u, 63u, 2101u})
        for (const Named& input : adversarial_vectors(count))
          for (const std::int64_t block : {32, 96, 2048})
            compare(g, Codec(format, block), input, dtype);
      compare_sums(g, Codec(format, 96), dtype);
    }
}

}  // namespace zero::comm::wire::testing
