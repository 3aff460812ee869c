#include "comm/bytes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "zero/base/simd.h"

namespace zero::comm {

#if defined(__x86_64__)
namespace {

constexpr std::int64_t line = 64, batch = 4 * line;
constexpr std::int64_t ahead = 4096;  // a page, so that the address is translated in time

using Blocks = void (*)(std::byte* to, const std::byte* from, std::int64_t bytes);

// `to` is aligned to a line, `bytes` a multiple of the batch; prefetches may run past the end.
void stream_sse2(std::byte* to, const std::byte* from, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += line) {
    _mm_prefetch(reinterpret_cast<const char*>(from) + i + ahead, _MM_HINT_T0);
    const auto* source = reinterpret_cast<const __m128i*>(from + i);
    auto* target = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
}

[[gnu::target("avx512f")]] void stream_avx512(std::byte* to, const std::byte* from,
                                              std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += batch)
    for (std::int64_t k = i; k < i + batch; k += line) {
      _mm_prefetch(reinterpret_cast<const char*>(from) + k + ahead, _MM_HINT_T0);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + k), _mm512_loadu_si512(from + k));
    }
}

}  // namespace

void copy_streaming(void* to, const void* from, std::int64_t bytes) {
  static const Blocks stream = simd_level() == SimdLevel::avx512 ? stream_avx512 : stream_sse2;
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % line);
  const std::int64_t head = misaligned == 0 ? 0 : line - misaligned;
  const std::int64_t middle = (bytes - head) / batch * batch;
  std::memcpy(to, from, head);
  stream(at(to, head), at(from, head), middle);
  _mm_sfence();  // before the flag that announces the data to peers
  const std::int64_t done = head + middle;
  std::memcpy(at(to, done), at(from, done), bytes - done);
}
#else
void copy_streaming(void* to, const void* from, std::int64_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace zero::comm
