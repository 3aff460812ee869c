// The key table: one row per key of the JSON file, and the only place with their names. Parser,
// checks, messages, the JSON Schema and docs/config.md are derived from this table; the text of
// describe() is derived from zero/plan/config_fields.h.
//
// A key that the engine does not support is refused; with a field there it becomes `honored`.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/reduce_groups.h"
#include "zero/base/text.h"
#include "zero/plan/config_fields.h"

namespace zero::config_schemas {

enum class Type : std::uint8_t {
  section,  // an object with its own rows
  boolean,
  integer,
  number,
  choice,       // one of `choices`
  pair,         // an array of two numbers
  group_size,   // "node" or an integer
  group_sizes,  // the same, or an array of integers
  integers,     // an array of integers, not empty
  text,         // any string
  list,         // any array
  block,        // an object with keys that the table does not list
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

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // low itself is excluded
  bool below_high = false;  // high itself is excluded
};

struct RefusedChoice {
  std::string_view name, reason;
};

struct Key {
  std::string path = "";        // "*" matches a name that the user chooses
  std::string_view alias = "";  // another spelling of the last name
  Type type = Type::any;
  Range range = {};
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
  const detail::ConfigField* field = nullptr;  // the field of an `honored` row
  std::string_view meaning = "";
};

// The meaning of keys that DeepSpeed does not read either. Not suggested for misspelled keys.
inline constexpr std::string_view never_read = "nothing";

const std::vector<Key>& keys();

// Returns the row of a path of the table, in any spelling; null if there is none.
const Key* find_key(std::string_view path);
// Returns the row of key `name` in the section with the path `section` ("" at top level).
const Key* find_key(std::string_view section, std::string_view name);

// Every spelling of every path.
using Spellings = std::map<std::string, const Key*, std::less<>>;
const Spellings& spellings();

// The known key that an unknown path was probably meant to be.
struct Guess {
  // In the order of preference.
  enum class Kind : std::uint8_t {
    none,       // no known key is similar
    slip,       // a misspelled key of the same section
    elsewhere,  // a key of another section
    part,       // some words of the name of a key of the same section
    similar,    // a misspelled key of another section
  };
  Kind kind = Kind::none;
  const Key* key = nullptr;
  std::string path = "";  // in the spelling nearest to the given path
};
// Compares with every key of the table.
Guess guess_key(std::string_view path);
// Guesses by a last name alone, in any section.
Guess guess_name(std::string_view name);

// "zero_optimization" of "zero_optimization.stage".
std::string_view section_of(std::string_view path);
std::string_view last_name(std::string_view path);
std::string join(std::string_view section, std::string_view name);

// Returns true if an optimizer or schedule of this type has the parameter.
bool belongs_to(const Key& key, std::string_view type);
// Returns the types that have the parameter: "Adam, AdamW".
std::string owners_of(const Key& key);

// Returns true if DeepSpeed validates the section of this path and converts values, instead of
// taking values unchanged.
bool converts_values(std::string_view path);

// Returns true if DeepSpeed refuses unknown keys of this section; otherwise DeepSpeed ignores them.
bool is_closed(std::string_view section);

// Returns true if the name starts with _, as in "_comment": a comment, since JSON has none.
bool is_comment(std::string_view name);

}  // namespace zero::config_schemas
