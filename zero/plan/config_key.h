// A row of the table of config keys: path, type, range, the member of Config and the effect. The
// keys that act are in zero/plan/config_keys.cpp, and all others in config_schemas/. Parser,
// checks, messages, the JSON Schema, docs/config.md and describe() are derived from rows.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "comm/reduce_groups.h"
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

enum class Type : std::uint8_t {
  section,  // an object with its own rows
  boolean,
  integer,
  number,
  choice,            // one of `choices`
  pair,              // an array of two numbers
  group_size,        // "node" or an integer
  group_sizes,       // the same, or an array of integers
  integers,          // an array of integers, not empty
  text,              // any string
  text_or_integers,  // any string, or an array of integers as its text
  list,              // any array
  block,             // an object with keys that the table does not list
  any,
};

// Treatment of a key in a file: applied, accepted without effect, refused if its value requests an
// effect, or converted from an old name.
enum class Status : std::uint8_t { honored, no_effect, refused, replaced };

// As a double, which cannot distinguish 2^63 from the next lower integer; messages show the
// integer.
inline constexpr double largest_integer = 0x1p63, largest_unsigned = 0x1p64;

// Limit of ranks in any file or command line.
inline constexpr int most_ranks = 1 << 20;
inline constexpr int most_reduce_groups = comm::ReduceGroups::most_levels;

struct ValueRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // low itself is excluded
  bool below_high = false;  // high itself is excluded

  bool contains(double value) const {
    return (above_low ? value > low : value >= low) && (below_high ? value < high : value <= high);
  }
  // " from 0 to 1", or " in (0, 1]"; empty without limits.
  std::string text() const;
};

struct RefusedChoice {
  std::string_view name, reason;
};

struct Key {
  std::string path = "";        // "*" matches a name that the user chooses
  std::string_view alias = "";  // another spelling of the last name
  Type type = Type::any;
  ValueRange range = {};
  std::vector<std::string_view> choices = {};
  std::vector<RefusedChoice> refused_choices = {};  // known, but not supported
  bool any_case = false;                            // of choices
  bool nullable = false;                            // null is the same as absent
  bool infinity_is_null = false;                    // "inf" is the same as null
  bool strict = false;          // DeepSpeed takes no other type, nor strings and 1e3 for an integer
  bool list_of_one = false;     // DeepSpeed takes a list here, of a value for each group
  bool auto_is_absent = false;  // of a section: "auto" is the same as absent
  std::span<const std::string_view> belongs_to = {};  // the optimizers or schedules that have it
  bool required = false;                              // by these types
  Status status = Status::honored;
  std::string_view reason = "";  // of a status other than `honored`; of `replaced`: the new path
  // Values of an unsupported key, as shown, that are accepted because they request the existing
  // behavior. The default is always accepted.
  std::vector<std::string_view> harmless = {};
  // Returns true for such values if they depend on the rest of the config.
  bool (*already_so)(const Config&, std::string_view shown) = nullptr;
  std::string_view switched_by = "";     // no effect unless this boolean key is true
  bool sharded_parameters_only = false;  // acts only on sharded parameters, in DeepSpeed too
  bool on_by_presence = false;           // a block without "enabled" is switched on by its presence
  bool removed = false;                  // DeepSpeed 0.19 refuses the key with any value
  std::string_view initial = "";         // default of a row without a field, as shown
  // The member of Config that an `honored` row sets; `group` is the name that "*" matches.
  FieldRef (*of)(Config& config, const std::string& group) = nullptr;
  std::string_view zero = "0";  // text for an integer 0
  std::string_view meaning = "";
};

// The rows of keys that act, and of the sections that contain all keys.
const std::vector<Key>& honored_keys();

}  // namespace zero::detail
