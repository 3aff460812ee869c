#include "zero/base/file_dtype.h"

#include <algorithm>
#include <array>
#include <utility>

#include "zero/base/enum_array.h"

namespace zero {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 22> dtypes{{
    {"F64", 64},    {"F32", 32},    {"F16", 16},        {"BF16", 16},       {"I64", 64},
    {"I32", 32},    {"I16", 16},    {"I8", 8},          {"U64", 64},        {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8},        {"C64", 64},        {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
}};

}  // namespace

std::string safetensors_name(DType dtype) {
  static constexpr EnumArray<DType, const char*, 5> names{"F32", "BF16", "F16", "I64", "U8"};
  return names[dtype];
}

std::optional<DType> dtype_named(std::string_view dtype) {
  for (const DType ours : {DType::fp32, DType::bf16, DType::fp16, DType::int64})
    if (safetensors_name(ours) == dtype) return ours;
  return std::nullopt;
}

std::optional<DType> parameter_dtype(std::string_view dtype) {
  const std::optional<DType> own = dtype_named(dtype);
  if (own && *own != DType::int64) return own;
  return bits_of(dtype) == 8 ? std::optional(DType::uint8) : std::nullopt;
}

std::optional<int> bits_of(std::string_view dtype) {
  const auto found = std::ranges::find(dtypes, dtype, &std::pair<std::string_view, int>::first);
  if (found == dtypes.end()) return std::nullopt;
  return found->second;
}

}  // namespace zero
