// Kernels of one SIMD level, with formats and dtypes resolved. Kernels process whole groups of 32
// elements; the remainder of a short block goes through a padded copy on the stack.
#pragma once

#include <cstring>
#include <type_traits>

#include "comm/wire/block_codes.h"
#include "comm/wire/cpu/kernels.h"
#include "zero/base/simd/lanes.h"

namespace zero::comm::wire {

template <class V>
struct KernelSet {
  static constexpr std::int64_t group = V::lanes;
  // Distance of prefetches in bytes; otherwise nothing would be read while a block is encoded.
  static constexpr std::int64_t ahead = 4096;

  using AllLanes = simd::AllLanes<V>;
  using SomeLanes = simd::SomeLanes<V>;

  // Calls body(i, lanes) for the groups of n elements.
  template <class Body>
  [[gnu::always_inline]] static void for_groups(std::int64_t n, const Body& body) {
    simd::for_vectors<V>(0, n, body);
  }

  // Destination of decoded elements.
  template <class T>
  struct Store {
    T* to;
    template <class Lanes>
    [[gnu::always_inline]] void put(const V& value, std::int64_t i, Lanes lanes) const {
      lanes.store(value, to + i);
    }
  };
  struct Add {
    float* to;
    template <class Lanes>
    [[gnu::always_inline]] void put(const V& value, std::int64_t i, Lanes lanes) const {
      lanes.store(lanes.load(to + i) + value, to + i);
    }
  };

  template <class F>
  static constexpr std::int64_t bytes_of(std::int64_t elements) {
    return (elements * F::bits + 7) / 8;
  }
  template <class F>
  static std::uint8_t* codes_at(const Encoded& encoded, std::int64_t element) {
    return encoded.codes + bytes_of<F>(element);
  }
  template <class F>
  static typename F::Scale& scale_at(const Encoded& encoded, std::int64_t block) {
    return static_cast<typename F::Scale*>(encoded.scales)[block];
  }

  template <class T>
  [[gnu::always_inline]] static std::uint32_t largest_magnitude(const T* x, std::int64_t n) {
    typename V::template Maximum<T> maximum;
    constexpr std::int64_t size = sizeof(T);
    std::int64_t i = 0;
    for (; i + group <= n; i += group) {
      for (std::int64_t line = 0; line < group * size; line += 64)
        __builtin_prefetch(x + i + (ahead + line) / size);
      maximum.include(x + i);
    }
    if (i < n) {
      T rest[group] = {};
      std::memcpy(rest, x + i, static_cast<std::size_t>((n - i) * size));
      maximum.include(rest);
    }
    return maximum.bits();
  }

  // Scale and scaling of a block; all codes are zeros if the block has an infinity or NaN.
  template <class F>
  struct Measure {
    typename F::Scale scale;
    Scaling scaling;
    bool finite;
  };
  template <class F, class T>
  [[gnu::always_inline]] static Measure<F> measure(const T* x, std::int64_t n) {
    const std::uint32_t largest = largest_magnitude(x, n);
    const typename F::Scale scale = F::scale_of(largest);
    return {scale, F::scaling(scale), largest < infinity_bits};
  }
  template <class F, class T>
  [[gnu::always_inline]] static void write_codes(const Measure<F>& measure, const T* x,
                                                 std::int64_t n, std::uint8_t* codes) {
    if (!measure.finite)
      return void(std::memset(codes, 0, static_cast<std::size_t>(bytes_of<F>(n))));
    std::int64_t i = 0;
    for (; i + group <= n; i += group)
      V::load(x + i).template write_codes<F>(measure.scaling, codes + bytes_of<F>(i));
    if (i == n) return;
    std::uint8_t padded[bytes_of<F>(group)];
    SomeLanes{n - i}.load(x + i).template write_codes<F>(measure.scaling, padded);
    std::memcpy(codes + bytes_of<F>(i), padded, static_cast<std::size_t>(bytes_of<F>(n - i)));
  }
  template <class F, class T>
  static void encode_block(const T* x, std::int64_t n, std::uint8_t* codes,
                           typename F::Scale& scale) {
    const Measure<F> own = measure<F>(x, n);
    scale = own.scale;
    write_codes(own, x, n, codes);
  }

  template <class F, class Sink>
  [[gnu::always_inline]] static void decode_block(const std::uint8_t* codes,
                                                  typename F::Scale scale, std::int64_t n,
                                                  const Sink& sink) {
    const float value = F::value_of(scale);
    std::int64_t i = 0;
    for (; i + group <= n; i += group)
      sink.put(V::template decode<F>(codes + bytes_of<F>(i), value), i, AllLanes());
    if (i == n) return;
    std::uint8_t padded[bytes_of<F>(group)] = {};
    std::memcpy(padded, codes + bytes_of<F>(i), static_cast<std::size_t>(bytes_of<F>(n - i)));
    sink.put(V::template decode<F>(padded, value), i, SomeLanes{n - i});
  }

  // Calls body(block), with a constant for the smallest blocks.
  template <class Body>
  [[gnu::always_inline]] static void with_block(std::int64_t block, const Body& body) {
    if (block == group) return body(std::integral_constant<std::int64_t, group>{});
    body(block);
  }

  template <class F, class T, class Block>
  [[gnu::always_inline]] static void encode_blocks(Block block, const T* from, std::int64_t count,
                                                   const Encoded& to) {
    const std::int64_t blocks = count / block;
    // A block is measured before the previous one's codes are written, so that neither waits.
    Measure<F> next = blocks > 0 ? measure<F>(from, block) : Measure<F>{};
    for (std::int64_t number = 0; number < blocks; ++number, from += block) {
      const Measure<F> own = next;
      scale_at<F>(to, number) = own.scale;
      if (number + 1 < blocks) next = measure<F>(from + block, block);
      write_codes(own, from, block, codes_at<F>(to, number * block));
    }
    if (const std::int64_t end = blocks * block; end < count)
      encode_block<F>(from, count - end, codes_at<F>(to, end), scale_at<F>(to, blocks));
  }
  template <class F, class Block, class Sink>
  [[gnu::always_inline]] static void decode_blocks(Block block, const Encoded& from,
                                                   std::int64_t count, const Sink& sink) {
    const std::int64_t blocks = count / block;
    for (std::int64_t number = 0; number < blocks; ++number)
      decode_block<F>(codes_at<F>(from, number * block), scale_at<F>(from, number), block,
                      Sink{sink.to + number * block});
    if (const std::int64_t end = blocks * block; end < count)
      decode_block<F>(codes_at<F>(from, end), scale_at<F>(from, blocks), count - end,
                      Sink{sink.to + end});
  }

  template <class F, class T>
  static void encode_all(std::int64_t block, const T* from, std::int64_t count, const Encoded& to) {
    if constexpr (std::is_same_v<F, bf16>)
      for_groups(count, [&](std::int64_t i, auto lanes) {
        lanes.store(lanes.load(from + i), reinterpret_cast<bf16*>(to.codes) + i);
      });
    else
      with_block(block, [&](auto size) { encode_blocks<F>(size, from, count, to); });
  }

  template <class F, class Sink>
  static void decode_all(std::int64_t block, const Encoded& from, std::int64_t count,
                         const Sink& sink) {
    if constexpr (std::is_same_v<F, bf16>) {
      const auto* elements = reinterpret_cast<const bf16*>(from.codes);
      for_groups(count,
                 [&](std::int64_t i, auto lanes) { sink.put(lanes.load(elements + i), i, lanes); });
    } else {
      with_block(block, [&](auto size) { decode_blocks<F>(size, from, count, sink); });
    }
  }

  template <class Body>
  static void with_format(Format format, const Body& body) {
    if (format == Format::bf16) return body.template operator()<bf16>();
    with_block_format(format, body);
  }

  static void sum(const void* const* sources, int count, DType dtype, std::int64_t first,
                  std::int64_t n, void* to, DType to_dtype) {
    with_float_type(dtype, [&]<class T>() {
      with_float_type(to_dtype, [&]<class To>() {
        for_groups(n, [&](std::int64_t i, auto lanes) {
          V total = lanes.load(static_cast<const T*>(sources[0]) + first + i);
          for (int s = 1; s < count; ++s)
            total = total + lanes.load(static_cast<const T*>(sources[s]) + first + i);
          lanes.store(total, static_cast<To*>(to) + i);
        });
      });
    });
  }

  static void encode(const Codec& codec, const void* from, DType dtype, std::int64_t count,
                     Encoded to) {
    with_format(codec.format, [&]<class F>() {
      with_float_type(dtype, [&]<class T>() {
        encode_all<F>(codec.block, static_cast<const T*>(from), count, to);
      });
    });
  }

  static void decode(const Codec& codec, Encoded from, std::int64_t count, void* to, DType dtype) {
    with_format(codec.format, [&]<class F>() {
      with_float_type(dtype, [&]<class T>() {
        decode_all<F>(codec.block, from, count, Store<T>{static_cast<T*>(to)});
      });
    });
  }

  static void decode_add(const Codec& codec, Encoded from, std::int64_t count, float* sum) {
    with_format(codec.format,
                [&]<class F>() { decode_all<F>(codec.block, from, count, Add{sum}); });
  }

  static void compare(const void* values, DType dtype, const float* decoded, std::int64_t count,
                      float sums[2]) {
    alignas(64) float zeros[group] = {}, lanes[2][group];
    const V zero = V::load(zeros);
    V lost = zero, squares = zero;
    const auto add_square = [](auto sum, auto a, auto b) { return sum + (a - b) * (a - b); };
    with_float_type(dtype, [&]<class T>() {
      for_groups(count, [&](std::int64_t i, auto lanes) {
        const V value = lanes.load(static_cast<const T*>(values) + i);
        lost = V::combine(add_square, lost, value, lanes.load(decoded + i));
        squares = V::combine(add_square, squares, value, zero);
      });
    });
    lost.store(lanes[0]);
    squares.store(lanes[1]);
    for (int k = 0; k < 2; ++k) {
      sums[k] = 0;
      for (const float lane : lanes[k]) sums[k] += lane;
    }
  }

  static constexpr Kernels kernels{sum, encode, decode, decode_add, compare};
};

}  // namespace zero::comm::wire
