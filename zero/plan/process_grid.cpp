#include "zero/plan/process_grid.h"

namespace zero::detail {

const char* name_of(Axis axis) {
  static constexpr EnumArray<Axis, const char*, axis_count> names{
      {{"pipe", "replicate", "shard", "tensor"}}};
  return names[axis];
}

int ProcessGrid::coordinate(Axis axis, int rank) const {
  for (int faster = axis_count - 1; faster > static_cast<int>(axis); --faster)
    rank /= size(static_cast<Axis>(faster));
  return rank % size(axis);
}

std::string ProcessGrid::place_of(int rank) const {
  std::string text;
  for (int a = 0; a < axis_count; ++a) {
    const auto axis = static_cast<Axis>(a);
    if (size(axis) > 1)
      text += (text.empty() ? "" : ", ") + std::string(name_of(axis)) + " " +
              std::to_string(coordinate(axis, rank)) + " of " + std::to_string(size(axis));
  }
  return text;
}

}  // namespace zero::detail
