// Compares the wire formats with a copy of memory, on one core: bench_wire [MIB [BLOCK]]
//
// For each format and dtype of elements: GiB/s of encode(), with and without its errors, and
// decode(), counting the bytes read and written, and the same for a memcpy() that moves the same
// number of bytes. In turns; the best of the repetitions counts, since others may use the memory at
// the same time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "comm/wire/layout.h"
#include "zero/base/number_text.h"

namespace {

using namespace zero;
using namespace zero::comm;

constexpr int repetitions = 15;

template <class Call>
double seconds(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Buffers {
  std::vector<std::byte> plain, encoded, copied, copy;
};

template <class Call>
void run(const char* what, std::int64_t bytes, Buffers& buffers, const Call& call) {
  double own = HUGE_VAL, copying = HUGE_VAL;
  const auto half = static_cast<std::size_t>(bytes / 2);  // read once and written once
  for (int i = 0; i < repetitions; ++i) {
    own = std::min(own, seconds(call));
    copying = std::min(
        copying, seconds([&] { std::memcpy(buffers.copy.data(), buffers.copied.data(), half); }));
  }
  const auto rate = [&](double time) { return static_cast<double>(bytes) / time / gibibyte; };
  std::printf("  %s %6.2f GiB/s (copy %6.2f, ratio %4.2f)", what, rate(own), rate(copying),
              copying / own);
}

void run(const wire::Codec& codec, DType dtype, std::int64_t count, Buffers& buffers) {
  const std::int64_t bytes = count * size_of(dtype) + encoded_bytes(codec, count, dtype);
  std::printf("%-8s %-4s", name_of(codec.format), name_of(dtype));
  run("encode", bytes, buffers, [&] {
    encode(codec, {buffers.plain.data(), dtype, count}, buffers.encoded.data());
  });
  wire::ErrorSums errors;
  run("compared", bytes, buffers, [&] {
    encode(codec, {buffers.plain.data(), dtype, count, {&errors}}, buffers.encoded.data());
  });
  run("decode", bytes, buffers,
      [&] { decode(codec, buffers.encoded.data(), count, buffers.plain.data(), dtype); });
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t mebibytes = argc > 1 ? std::atoll(argv[1]) : 256;
  const std::int64_t block = argc > 2 ? std::atoll(argv[2]) : 256;
  const std::int64_t count = mebibytes * (1 << 20) / 4;
  const auto size = static_cast<std::size_t>(count) * 4;
  Buffers buffers{std::vector<std::byte>(size), std::vector<std::byte>(size),
                  std::vector<std::byte>(size), std::vector<std::byte>(size)};
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.01f);
  std::vector<float> values(1 << 16);
  for (float& value : values) value = normal(random);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (std::int64_t at = 0; at < count; at += std::ssize(values)) {
      const std::int64_t n = std::min<std::int64_t>(std::ssize(values), count - at);
      const wire::Codec rounding(dtype == DType::bf16 ? wire::Format::bf16 : wire::Format::none);
      encode(rounding, {values.data(), DType::fp32, n}, buffers.plain.data() + at * size_of(dtype));
    }
    for (const auto format : {wire::Format::bf16, wire::Format::fp8_e4m3, wire::Format::mxfp8,
                              wire::Format::int8, wire::Format::int4})
      run(wire::Codec(format, block), dtype, count, buffers);
  }
  return 0;
}
