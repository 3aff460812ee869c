#include "comm/wire/kernels.h"

#include <algorithm>
#include <type_traits>

#include "comm/conversions.h"
#include "comm/wire/block_codes.h"

namespace zero::comm::wire {
namespace {

// Plain loops, which the compiler vectorizes for the instructions of the function that they are
// inlined into.

[[gnu::always_inline]] inline std::uint32_t magnitude_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}
template <class T>
[[gnu::always_inline]] inline std::uint16_t magnitude_of(T value) {
  return value.bits & 0x7fffu;
}

[[gnu::always_inline]] inline std::uint32_t largest_magnitude(const float* x, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_of(x[i]));
  return largest;
}
// Magnitudes of both 16-bit types have the order of their bits.
template <class T>
[[gnu::always_inline]] inline std::uint32_t largest_magnitude(const T* x, std::int64_t n) {
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_of(x[i]));
  return std::bit_cast<std::uint32_t>(widen(T{largest}));
}

// A block starts at a whole byte, as blocks have even numbers of elements.
template <class F>
[[gnu::always_inline]] inline std::uint8_t* codes_at(const Encoded& encoded, std::int64_t element) {
  return encoded.codes + element * F::bits / 8;
}
template <class F>
[[gnu::always_inline]] inline typename F::Scale& scale_at(const Encoded& encoded,
                                                          std::int64_t block) {
  return static_cast<typename F::Scale*>(encoded.scales)[block];
}

[[gnu::always_inline]] inline void pack(const std::uint8_t* halves, std::int64_t n,
                                        std::uint8_t* codes) {
  const std::int64_t pairs = n / 2;
  for (std::int64_t i = 0; i < pairs; ++i)
    codes[i] = static_cast<std::uint8_t>(halves[2 * i] | halves[2 * i + 1] << 4);
  if (n % 2 != 0) codes[pairs] = halves[n - 1];
}
[[gnu::always_inline]] inline void unpack(const std::uint8_t* codes, std::int64_t n,
                                          std::uint8_t* halves) {
  for (std::int64_t i = 0; i < (n + 1) / 2; ++i) {
    halves[2 * i] = codes[i] & 0xf;
    halves[2 * i + 1] = codes[i] >> 4;
  }
}

// Codes of a block with an infinity or NaN are zeros.
template <class F, class T>
[[gnu::always_inline]] inline void encode_block(const T* x, std::int64_t n, std::uint8_t* codes,
                                                typename F::Scale& scale) {
  const std::uint32_t largest = largest_magnitude(x, n);
  scale = F::scale_of(largest);
  if (largest >= infinity_bits) {
    std::fill_n(codes, (n * F::bits + 7) / 8, std::uint8_t{0});
    return;
  }
  const Scaling scaling = F::scaling(scale);
  if constexpr (F::bits == 8) {
    for (std::int64_t i = 0; i < n; ++i)
      codes[i] = F::code(widen(x[i]) * scaling.first * scaling.second);
  } else {
    alignas(64) std::uint8_t halves[largest_block];
    for (std::int64_t i = 0; i < n; ++i)
      halves[i] = F::code(widen(x[i]) * scaling.first * scaling.second);
    pack(halves, n, codes);
  }
}

// What becomes of decoded elements.
template <class T>
struct Store {
  T* to;
  [[gnu::always_inline]] void put(std::int64_t i, float value) const { to[i] = narrow<T>(value); }
};
struct Add {
  float* to;
  [[gnu::always_inline]] void put(std::int64_t i, float value) const { to[i] += value; }
};

template <class F, class Sink>
[[gnu::always_inline]] inline void decode_block(const std::uint8_t* codes, typename F::Scale scale,
                                                std::int64_t n, const Sink& sink) {
  const float value = F::value_of(scale);
  if constexpr (F::bits == 8) {
    for (std::int64_t i = 0; i < n; ++i) sink.put(i, value * F::unit(codes[i]));
  } else {
    alignas(64) std::uint8_t halves[largest_block];
    unpack(codes, n, halves);
    for (std::int64_t i = 0; i < n; ++i) sink.put(i, value * F::unit(halves[i]));
  }
}

template <class F, class T>
[[gnu::always_inline]] inline void encode_all(std::int64_t block, const T* from, std::int64_t count,
                                              const Encoded& to) {
  if constexpr (std::is_same_v<F, bf16>) {
    auto* codes = reinterpret_cast<bf16*>(to.codes);
    for (std::int64_t i = 0; i < count; ++i) codes[i] = narrow<bf16>(widen(from[i]));
  } else {
    for (std::int64_t at = 0; at < count; at += block)
      encode_block<F>(from + at, std::min(block, count - at), codes_at<F>(to, at),
                      scale_at<F>(to, at / block));
  }
}

template <class F, class Sink>
[[gnu::always_inline]] inline void decode_all(std::int64_t block, const Encoded& from,
                                              std::int64_t count, const Sink& sink) {
  if constexpr (std::is_same_v<F, bf16>) {
    const auto* codes = reinterpret_cast<const bf16*>(from.codes);
    for (std::int64_t i = 0; i < count; ++i) sink.put(i, widen(codes[i]));
  } else {
    for (std::int64_t at = 0; at < count; at += block)
      decode_block<F>(codes_at<F>(from, at), scale_at<F>(from, at / block),
                      std::min(block, count - at), Sink{sink.to + at});
  }
}

template <class F, class T>
[[gnu::always_inline]] inline void encode_fed_back(std::int64_t block, const T* gradient,
                                                   const Encoded& residue, const Feedback& feedback,
                                                   std::int64_t count, const Encoded& to) {
  alignas(64) float error[largest_block], wanted[largest_block], decoded[largest_block];
  for (std::int64_t at = 0; at < count; at += block) {
    const std::int64_t n = std::min(block, count - at);
    if (feedback.reset)
      std::fill_n(error, n, 0.0f);
    else
      decode_block<Int8>(codes_at<Int8>(residue, at), scale_at<Int8>(residue, at / block), n,
                         Store<float>{error});
    for (std::int64_t i = 0; i < n; ++i) wanted[i] = widen(gradient[at + i]) + error[i];
    std::uint8_t* codes = codes_at<F>(to, at);
    encode_block<F>(wanted, n, codes, scale_at<F>(to, at / block));
    decode_block<F>(codes, scale_at<F>(to, at / block), n, Store<float>{decoded});
    for (std::int64_t i = 0; i < n; ++i)
      decoded[i] = next_residue(error[i], wanted[i], decoded[i], feedback.beta);
    const bool finite = largest_magnitude(decoded, n) < infinity_bits;
    encode_block<Int8>(finite ? decoded : error, n, codes_at<Int8>(residue, at),
                       scale_at<Int8>(residue, at / block));
  }
}

template <class T>
[[gnu::always_inline]] inline void store_all(const float* from, std::int64_t count, T* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = narrow<T>(from[i]);
}

struct Portable {
  template <class F, class T>
  static void encode(std::int64_t block, const T* from, std::int64_t count, const Encoded& to) {
    encode_all<F>(block, from, count, to);
  }
  template <class F, class Sink>
  static void decode(std::int64_t block, const Encoded& from, std::int64_t count,
                     const Sink& sink) {
    decode_all<F>(block, from, count, sink);
  }
  template <class T>
  static void store(const float* from, std::int64_t count, T* to) {
    store_all(from, count, to);
  }
  template <class F, class T>
  static void feed_back(std::int64_t block, const T* gradient, const Encoded& residue,
                        const Feedback& feedback, std::int64_t count, const Encoded& to) {
    encode_fed_back<F>(block, gradient, residue, feedback, count, to);
  }
};

#if defined(__x86_64__)
struct Avx2 {
  template <class F, class T>
  [[gnu::target("avx2")]] static void encode(std::int64_t block, const T* from, std::int64_t count,
                                             const Encoded& to) {
    encode_all<F>(block, from, count, to);
  }
  template <class F, class Sink>
  [[gnu::target("avx2")]] static void decode(std::int64_t block, const Encoded& from,
                                             std::int64_t count, const Sink& sink) {
    decode_all<F>(block, from, count, sink);
  }
  template <class T>
  [[gnu::target("avx2")]] static void store(const float* from, std::int64_t count, T* to) {
    store_all(from, count, to);
  }
  template <class F, class T>
  [[gnu::target("avx2")]] static void feed_back(std::int64_t block, const T* gradient,
                                                const Encoded& residue, const Feedback& feedback,
                                                std::int64_t count, const Encoded& to) {
    encode_fed_back<F>(block, gradient, residue, feedback, count, to);
  }
};

struct Avx512 {
  template <class F, class T>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] static void encode(
      std::int64_t block, const T* from, std::int64_t count, const Encoded& to) {
    encode_all<F>(block, from, count, to);
  }
  template <class F, class Sink>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] static void decode(
      std::int64_t block, const Encoded& from, std::int64_t count, const Sink& sink) {
    decode_all<F>(block, from, count, sink);
  }
  template <class T>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] static void store(
      const float* from, std::int64_t count, T* to) {
    store_all(from, count, to);
  }
  template <class F, class T>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] static void
  feed_back(std::int64_t block, const T* gradient, const Encoded& residue, const Feedback& feedback,
            std::int64_t count, const Encoded& to) {
    encode_fed_back<F>(block, gradient, residue, feedback, count, to);
  }
};
#endif

// Calls body<F>() with the type of a block format.
template <class Body>
void with_block_format(Format format, const Body& body) {
  switch (format) {
    case Format::int8:
      return body.template operator()<Int8>();
    case Format::int4:
      return body.template operator()<Int4>();
    case Format::fp8_e4m3:
      return body.template operator()<Fp8>();
    case Format::mxfp8:
      return body.template operator()<Mxfp8>();
    case Format::none:
    case Format::bf16:
      return;
  }
}
template <class Body>
void with_format(Format format, const Body& body) {
  if (format == Format::bf16) return body.template operator()<bf16>();
  with_block_format(format, body);
}

// Calls body() with a pointer of the elements' type.
template <class Body>
void with_elements(const void* data, DType dtype, const Body& body) {
  if (dtype == DType::bf16) return body(static_cast<const bf16*>(data));
  if (dtype == DType::fp16) return body(static_cast<const fp16*>(data));
  body(static_cast<const float*>(data));
}

template <class L>
struct KernelsOf {
  static void encode(const Codec& codec, const void* from, DType dtype, std::int64_t count,
                     Encoded to) {
    with_format(codec.format, [&]<class F>() {
      with_elements(from, dtype, [&]<class T>(const T* elements) {
        L::template encode<F>(codec.block, elements, count, to);
      });
    });
  }

  static void decode(const Codec& codec, Encoded from, std::int64_t count, void* to, DType dtype) {
    with_format(codec.format, [&]<class F>() {
      with_elements(to, dtype, [&]<class T>(const T*) {
        L::template decode<F>(codec.block, from, count, Store<T>{static_cast<T*>(to)});
      });
    });
  }

  static void decode_add(const Codec& codec, Encoded from, std::int64_t count, float* sum) {
    with_format(codec.format,
                [&]<class F>() { L::template decode<F>(codec.block, from, count, Add{sum}); });
  }

  static void encode_with_feedback(const Codec& codec, const void* gradient, DType dtype,
                                   Encoded residue, const Feedback& feedback, std::int64_t count,
                                   Encoded to) {
    with_block_format(codec.format, [&]<class F>() {
      with_elements(gradient, dtype, [&]<class T>(const T* elements) {
        L::template feed_back<F>(codec.block, elements, residue, feedback, count, to);
      });
    });
  }

  static void store(const float* from, std::int64_t count, void* to, DType dtype) {
    with_elements(to, dtype,
                  [&]<class T>(const T*) { L::store(from, count, static_cast<T*>(to)); });
  }

  static constexpr Kernels kernels{encode, decode, decode_add, store, encode_with_feedback};
};

}  // namespace

const Kernels* find_kernels(Level level) {
  if (level == Level::portable) return &KernelsOf<Portable>::kernels;
#if defined(__x86_64__)
  if (level == Level::avx2 && __builtin_cpu_supports("avx2")) return &KernelsOf<Avx2>::kernels;
  if (level == Level::avx512 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return &KernelsOf<Avx512>::kernels;
#endif
  return nullptr;
}

const Kernels& kernels() {
  static const Kernels& best = []() -> const Kernels& {
    for (const Level level : {Level::avx512, Level::avx2})
      if (const Kernels* found = find_kernels(level)) return *found;
    return *find_kernels(Level::portable);
  }();
  return best;
}

}  // namespace zero::comm::wire
