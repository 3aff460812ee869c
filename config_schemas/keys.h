// The key table: one row per key of the JSON file, and the only place that knows their names.
// Parser, checks, messages, the JSON Schema and docs/config.md follow from it; what describe() says
// follows from zero/plan/config_fields.h.
//
// A key that the engine does not support is refused; it becomes honoured when it gets a field
// there.
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
  section,  // an object with rows of its own
  boolean,
  integer,
  number,
  choice,       // one of `choices`
  pair,         // an array of two numbers
  group_size,   // "node" or an integer
  group_sizes,  // the same, or an array of integers
  text,         // any string
  list,         // any array
  block,        // an object whose keys the table does not list
  any,
};

// What becomes of a key in a file: it acts, it is accepted without effect, it is refused where it
// asks for something, or it is an old name and converted.
enum class Status : std::uint8_t { honoured, no_effect, refused, replaced };

// As a double, which cannot tell 2^63 from the integer below it; messages show the integer.
inline constexpr double largest_integer = 0x1p63, largest_unsigned = 0x1p64;

// No file or command line may name more.
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
  std::string path = "";        // "*" stands for a name that the user chooses
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
  bool required = false;                              // by the types that have it
  Status status = Status::honoured;
  std::string_view reason = "";  // of a status other than honoured; of `replaced`: the new path
  // Of a key that is not honoured: values, as shown, that ask only for what the engine does anyway.
  // The default is always one of them.
  std::vector<std::string_view> harmless = {};
  // The same, where it depends on the rest of the config.
  bool (*already_so)(const Config&, std::string_view shown) = nullptr;
  std::string_view switched_by = "";     // acts only while this boolean key is true
  bool sharded_parameters_only = false;  // has no effect otherwise, in DeepSpeed too
  bool on_by_presence = false;           // a block without "enabled" is switched on by its presence
  bool removed = false;                  // DeepSpeed 0.19 refuses the key whatever its value
  std::string_view initial = "";         // default of a row without a field, as shown
  const detail::ConfigField* field = nullptr;  // of an honoured row: what it fills
  std::string_view meaning = "";
};

// The meaning of keys that DeepSpeed does not read either. They are not suggested for misspelt
// keys.
inline constexpr std::string_view never_read = "nothing";

const std::vector<Key>& keys();

// The row of a path of the table, written with any of its spellings; null if there is none.
const Key* find_key(std::string_view path);
// The row of key `name` in the section with the path `section` ("" at top level).
const Key* find_key(std::string_view section, std::string_view name);

// Every spelling of every path.
using Spellings = std::map<std::string, const Key*, std::less<>>;
const Spellings& spellings();

// What an unknown path was probably meant to be.
struct Guess {
  // In the order of preference.
  enum class Kind : std::uint8_t {
    none,       // no known key is similar
    slip,       // a misspelt key of the same section
    elsewhere,  // a key of another section
    part,       // some words of the name of a key of the same section
    similar,    // a misspelt key of another section
  };
  Kind kind = Kind::none;
  const Key* key = nullptr;
  std::string path = "";  // in the spelling nearest to what was written
};
// Compares with every key of the table.
Guess guess_key(std::string_view path);
// For a last name alone, in any section.
Guess guess_name(std::string_view name);

// "zero_optimization" of "zero_optimization.stage".
std::string_view section_of(std::string_view path);
std::string_view last_name(std::string_view path);
std::string join(std::string_view section, std::string_view name);

// Whether an optimizer or schedule of this type has the parameter.
bool belongs_to(const Key& key, std::string_view type);
// "Adam, AdamW": the types that have the parameter.
std::string owners_of(const Key& key);

// Whether DeepSpeed validates the section of this path and converts its values; elsewhere it takes
// values as they are.
bool converts_values(std::string_view path);

// Whether DeepSpeed refuses unknown keys of this section; elsewhere it ignores them.
bool is_closed(std::string_view section);

// A name that starts with _ is a comment, as in "_comment": JSON has no other.
bool is_comment(std::string_view name);

}  // namespace zero::config_schemas
