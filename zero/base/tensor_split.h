// A tensor that ranks hold in parts, each a range along one dimension, as the column- and
// row-parallel matrices of Megatron-LM. Elements have two orders: that of the whole (row-major),
// and that of the parts (part after part, each row-major), in which every part is contiguous.
// Local.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace zero {

struct TensorSplit {
  std::vector<std::int64_t> shape;  // of the whole
  int dim = 0;
  std::vector<std::int64_t> sizes;  // of the parts, along that dimension

  // A tensor in one part.
  static TensorSplit none(std::vector<std::int64_t> shape);
  bool operator==(const TensorSplit&) const = default;

  int parts() const { return static_cast<int>(sizes.size()); }
  std::int64_t elements() const;
  std::int64_t elements(int part) const { return sizes[part] * elements_per_size(); }
  // The first element of a part, in the order of parts.
  std::int64_t begin(int part) const;
  // The part of an element, by its number in the order of parts.
  int part_of(std::int64_t element) const;

  // Calls run(from, to, count) for the runs of elements that are contiguous in both orders: the
  // elements [begin, begin + count) of one order, in this order, with the number `to` of the first
  // in the other order.
  using Run = std::function<void(std::int64_t from, std::int64_t to, std::int64_t count)>;
  void for_whole(std::int64_t begin, std::int64_t count, const Run& run) const;  // of the whole
  void for_parts(std::int64_t begin, std::int64_t count, const Run& run) const;  // of the parts

 private:
  // Elements of the whole between neighbors along the dimension, and for each index of the
  // dimensions before.
  std::int64_t inner() const;
  std::int64_t row() const { return shape.empty() ? 1 : shape[dim] * inner(); }
  std::int64_t elements_per_size() const;
};

}  // namespace zero
