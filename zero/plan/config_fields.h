// The values of a Config as text, and checks of them, by the rows of keys.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "zero/plan/config_key.h"

namespace zero::detail {

inline constexpr const char* not_set = "(not set)";

// The type of the optimizer, or of the schedule if `path` is a schedule's parameter.
const std::string& type_for(std::string_view path, const Config& config);
// Whether one of `owners` is the configured type. A parameter of another type has no effect.
bool applies(std::string_view path, std::span<const std::string_view> owners, const Config& config);

// Throws ConfigError for a number that no file can have, but a program that sets members.
void check_ranges(const Config& config);

// The value as written in a file, exact; not_set if a file would omit it.
std::string text_of(const FieldRef& value, std::string_view zero = "0");

}  // namespace zero::detail
