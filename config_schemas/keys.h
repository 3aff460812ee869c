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

using detail::Key;
using detail::largest_integer;
using detail::largest_unsigned;
using detail::most_ranks;
using detail::most_reduce_groups;
using detail::RefusedChoice;
using detail::Status;
using detail::Type;
using detail::ValueRange;

// The meaning of keys that DeepSpeed does not read either. Not suggested for misspelled keys.
inline constexpr std::string_view never_read = "nothing";

const std::vector<Key>& keys();
// The parts of the table that are not in zero/plan.
std::vector<Key> keys_without_effect();
std::vector<Key> refused_keys();
std::vector<Key> replaced_keys();

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
