// A list of every value of Config with the path in the JSON file. describe() walks the list; the
// key table of config_schemas/ looks up the member that a key sets.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "zero/config.h"

namespace zero::detail {

// Two members from one array in the file.
using Pair = std::array<double*, 2>;
// CoreOptions::reduce_group_size and wider_reduce_groups, from one value in the file.
struct GroupSizes {
  int* innermost;
  std::vector<int>* wider;
};

using FieldRef = std::variant<std::monostate, bool*, int*, std::int64_t*, std::uint64_t*, double*,
                              std::string*, std::optional<std::int64_t>*, std::optional<double>*,
                              std::optional<std::pair<double, double>>*, std::optional<DType>*,
                              std::optional<bool>*, GradientSync*, OffloadDevice*, Pair, GroupSizes,
                              std::vector<std::int64_t>*>;

inline constexpr const char* not_set = "(not set)";

struct ConfigField {
  std::string_view path;  // "*" matches the name of a parameter group
  FieldRef (*of)(Config& config, const std::string& group);
  // The optimizers or schedules that have this parameter; empty: all.
  std::span<const std::string_view> owners = {};
  std::string_view zero = "0";  // text for an integer 0
};

std::span<const ConfigField> config_fields();

// The type of the optimizer, or of the schedule if `path` is a schedule's parameter.
const std::string& type_for(std::string_view path, const Config& config);
// Whether one of `owners` is the configured type. A parameter of another type has no effect.
bool applies(std::string_view path, std::span<const std::string_view> owners, const Config& config);

// Throws ConfigError for infinity and NaN, which no file can have, but a program that sets members.
void check_finite(const Config& config);

// The value as written in a file, exact; not_set if a file would omit it.
std::string text_of(const FieldRef& value, std::string_view zero = "0");

}  // namespace zero::detail
