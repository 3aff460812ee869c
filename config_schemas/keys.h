// The key table: one row per key of the JSON file, and the only place that knows their names.
// Parser, checks, messages, describe() and documentation follow from it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "zero/config.h"

namespace zero::config_schemas {

enum class Type : std::uint8_t {
  section,  // an object with rows of its own
  boolean,
  integer,
  number,
  choice,      // one of `choices`
  pair,        // an array of two numbers
  group_size,  // "node" or an integer
};

// What becomes of a key in a file: it acts, it is accepted without effect, or it is refused.
enum class Status : std::uint8_t { honoured, no_effect, refused };

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // low itself is excluded
  bool below_high = false;  // high itself is excluded
};

// The member of Config that a row fills.
using Pair = std::array<double*, 2>;
using Target =
    std::variant<std::monostate, bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                 std::optional<std::int64_t>*, std::optional<double>*, GradientSync*, Pair>;

struct Key {
  std::string_view path;        // "*" stands for a name of the user's choice
  std::string_view alias = "";  // another spelling of the last name
  Type type = Type::section;
  Range range = {};
  std::vector<std::string_view> choices = {};
  bool any_case = false;        // of choices
  bool nullable = false;        // null is the same as absent
  bool strict = false;          // no strings or 1e3 for an integer, where DeepSpeed refuses them
  bool zero_is_absent = false;  // the member's 0 says that the file gives no value
  std::vector<std::string_view> belongs_to =
      {};  // the types of the section that have this parameter
  Status status = Status::honoured;
  std::string_view reason = "";                                  // of a status other than honoured
  Target (*target)(Config&, const std::string& name) = nullptr;  // `name` is what "*" stands for
  std::string_view meaning = "";
};

const std::vector<Key>& keys();

// The row of a path of the table, written with any of its spellings; null if there is none.
const Key* find_key(std::string_view path);
// The row of key `name` in the section with the path `section` ("" at top level).
const Key* find_key(std::string_view section, std::string_view name);

// The known path that looks most like this one.
std::string nearest_key(std::string_view path);

// "zero_optimization" of "zero_optimization.stage".
std::string_view section_of(std::string_view path);
std::string_view last_name(std::string_view path);

// Whether an optimizer or schedule of this type has the parameter.
bool belongs_to(const Key& key, std::string_view type);

std::string lower_case(std::string_view text);

// DeepSpeed validates some sections and converts values there; elsewhere it takes them as they are.
bool converts_values(std::string_view path);

}  // namespace zero::config_schemas
