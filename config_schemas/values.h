// Converts between values of a document and members of Config.
#pragma once

#include <string>

#include "config_schemas/document.h"
#include "config_schemas/keys.h"

namespace zero::config_schemas {

// "an integer from 0 to 3", "one of each, last"
std::string allowed_values(const Key& key);

// Returns the value as a file would give it, exact; "(not set)" if a file would give none. For a
// row without a field: the default.
using detail::not_set;
std::string show_value(const Key& key, const std::string& name, Config& config);
// Returns the default of any row.
std::string show_default(const Key& key);
// Returns a value of the file in short form, for messages and tables.
std::string shown(const Node& node);

// Either the problem of the value (without the path), or the interpretation, which a row with a
// field stores there.
struct Outcome {
  std::string problem;
  std::string shown;
};
Outcome set_value(const Key& key, const std::string& name, const Node& node, Config& config);

// Returns true if "auto" is an ordinary value of this key.
bool takes_auto(const Key& key);

// Returns true if DeepSpeed does not check the value, and the value has no effect here either.
bool passes_unread(const Key& key);

// Returns true if the value is a string although the key takes a number or a truth value.
bool is_quoted(const Key& key, const Node& node);

}  // namespace zero::config_schemas
