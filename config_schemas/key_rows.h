// For the files that hold the rows of the key table: how a row reaches its member of Config, and
// short forms for rows that have none.
#pragma once

#include <utility>
#include <vector>

#include "config_schemas/keys.h"

namespace zero::config_schemas {

// Every number of the table has both ends, beyond what any run needs and small enough for sums and
// products of a few.
constexpr double many = 1e15;
constexpr Range counts{.low = 0, .high = many};
constexpr Range positive_counts{.low = 1, .high = many};
constexpr Range any_count{.low = -many, .high = many};
constexpr Range limits{.low = 0, .high = largest_integer};  // the largest is no limit
constexpr Range samples{.low = 1, .high = 1e9};
constexpr Range seconds{.low = 0, .high = 1e9};
constexpr Range positive_seconds{.low = 0, .high = 1e9, .above_low = true};
constexpr Range ranks{.low = 1, .high = 1 << 20};
constexpr Range small_counts{.low = 0, .high = 1000};
constexpr Range rates{.low = 0, .high = 1e6};
constexpr Range positive_rates{.low = 0, .high = 1e6, .above_low = true};
constexpr Range signed_rates{.low = -1e6, .high = 1e6};
constexpr Range unit_interval{.low = 0, .high = 1};
constexpr Range below_one{.low = 0, .high = 1, .below_high = true};

std::vector<Key> general_rows();
std::vector<Key> diagnostic_rows();
std::vector<Key> zero_rows();
std::vector<Key> offload_rows();
std::vector<Key> precision_rows();
std::vector<Key> optimizer_rows();
std::vector<Key> scheduler_rows();
std::vector<Key> section_rows();
std::vector<Key> removed_rows();
std::vector<Key> core_rows();

template <auto member>
Target top(Config& config, const std::string&) {
  return &(config.*member);
}

template <auto section, auto member>
Target at(Config& config, const std::string&) {
  return &(config.*section.*member);
}

// A key that is read, checked and listed at start, and does nothing here.
inline Key no_effect(std::string_view path, Type type, std::string_view initial,
                     std::string_view reason, std::string_view meaning) {
  return {.path = path,
          .type = type,
          .status = Status::no_effect,
          .reason = reason,
          .initial = initial,
          .meaning = meaning};
}

// A key that is refused unless its value asks for nothing.
inline Key refused(std::string_view path, Type type, std::string_view initial,
                   std::string_view reason, std::string_view meaning) {
  Key key = no_effect(path, type, initial, reason, meaning);
  key.status = Status::refused;
  return key;
}

inline Key section(std::string_view path, std::string_view meaning) {
  return {.path = path, .meaning = meaning};
}

inline Key in_range(Key key, Range range) {
  key.range = range;
  return key;
}

inline Key or_null(Key key) {
  key.nullable = true;
  return key;
}

inline Key one_of(Key key, std::vector<std::string_view> choices, bool any_case = false) {
  key.type = Type::choice;
  key.choices = std::move(choices);
  key.any_case = any_case;
  return key;
}

inline Key harmless(Key key, std::vector<std::string_view> values) {
  key.harmless = std::move(values);
  return key;
}

// DeepSpeed 0.19 refuses its mere presence, so that a value that asks for nothing is told too.
inline Key removed(Key key) {
  key.gone = true;
  return key;
}

inline Key under(std::string_view switched_by, Key key) {
  key.switched_by = switched_by;
  return key;
}

}  // namespace zero::config_schemas
