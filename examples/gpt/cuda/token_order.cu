#include "examples/gpt/cuda/token_order.h"

#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <numeric>
#include <vector>

#include "examples/gpt/cuda/check.h"

namespace gpt::cuda {

TokenOrder::TokenOrder(std::int64_t rows, std::int64_t vocabulary, cudaStream_t stream)
    : rows_(static_cast<int>(rows)),
      token_bits_(std::bit_width(static_cast<std::uint64_t>(vocabulary))),
      stream_(stream),
      numbers_(rows),
      sorted_tokens_(rows),
      sorted_rows_(rows) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  numbers_.fill(numbers.data(), stream);
  std::size_t needed = 0;
  const std::int32_t* tokens = nullptr;
  check(cub::DeviceRadixSort::SortPairs(nullptr, needed, tokens, sorted_tokens_.data(),
                                        numbers_.data(), sorted_rows_.data(), rows_, 0, token_bits_,
                                        stream),
        "cub::DeviceRadixSort::SortPairs");
  scratch_ = DeviceBuffer<unsigned char>(static_cast<std::int64_t>(needed));
}

const std::int32_t* TokenOrder::sort(const std::int32_t* tokens) {
  std::size_t scratch = scratch_.bytes();
  const std::int32_t* numbers = numbers_.data();
  check(
      cub::DeviceRadixSort::SortPairs(scratch_.data(), scratch, tokens, sorted_tokens_.data(),
                                      numbers, sorted_rows_.data(), rows_, 0, token_bits_, stream_),
      "cub::DeviceRadixSort::SortPairs");
  return sorted_rows_.data();
}

std::int64_t TokenOrder::bytes() const {
  return static_cast<std::int64_t>(numbers_.bytes() + sorted_tokens_.bytes() +
                                   sorted_rows_.bytes() + scratch_.bytes());
}

}  // namespace gpt::cuda
