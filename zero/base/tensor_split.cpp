#include "zero/base/tensor_split.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace zero {

namespace {

std::int64_t product(auto begin, auto end) {
  return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
}

}  // namespace

TensorSplit TensorSplit::none(std::vector<std::int64_t> shape) {
  const std::int64_t size = shape.empty() ? 1 : shape[0];
  return {std::move(shape), 0, {size}};
}

std::int64_t TensorSplit::elements() const {
  return product(shape.begin(), shape.end());
}

std::int64_t TensorSplit::inner() const {
  return shape.empty() ? 1 : product(shape.begin() + dim + 1, shape.end());
}

std::int64_t TensorSplit::elements_per_size() const {
  return shape.empty() ? 1 : product(shape.begin(), shape.begin() + dim) * inner();
}

std::int64_t TensorSplit::begin(int part) const {
  return std::accumulate(sizes.begin(), sizes.begin() + part, std::int64_t{0}) *
         elements_per_size();
}

int TensorSplit::part_of(std::int64_t element) const {
  int part = 0;
  while (part + 1 < parts() && element >= begin(part + 1)) ++part;
  return part;
}

void TensorSplit::for_parts(std::int64_t begin, std::int64_t count, const Run& run) const {
  if (parts() == 1) return run(begin, begin, count);
  for (const std::int64_t end = begin + count; begin < end;) {
    const int part = part_of(begin);
    const std::int64_t first = this->begin(part), width = sizes[part] * inner();
    const std::int64_t local = begin - first, outer = local / width, at = local % width;
    const std::int64_t before = first / elements_per_size() * inner();  // in each row of the whole
    const std::int64_t most = std::min(end, first + elements(part)) - begin;
    const std::int64_t length = std::min(most, width - at);
    run(begin, outer * row() + before + at, length);
    begin += length;
  }
}

void TensorSplit::for_whole(std::int64_t begin, std::int64_t count, const Run& run) const {
  if (parts() == 1) return run(begin, begin, count);
  for (const std::int64_t end = begin + count; begin < end;) {
    const std::int64_t outer = begin / row(), at = begin % row();
    int part = 0;
    std::int64_t before = 0;  // elements of a row in earlier parts
    while (at >= before + sizes[part] * inner()) before += sizes[part++] * inner();
    const std::int64_t width = sizes[part] * inner();
    const std::int64_t length = std::min(end - begin, before + width - at);
    run(begin, this->begin(part) + outer * width + at - before, length);
    begin += length;
  }
}

}  // namespace zero
