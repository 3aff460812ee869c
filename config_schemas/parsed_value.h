// Values of a document, each with its row of the key table.
#pragma once

#include <string>
#include <vector>

#include "config_schemas/document.h"
#include "config_schemas/keys.h"
#include "config_schemas/load.h"

namespace zero::config_schemas {

struct ParsedValue {
  const Key* key;
  std::string path;  // as the user spelled it
  std::string name;  // the name matched by "*" of the row's path
  const Node* node;
  Source source = Source::file;
  std::string shown = "";  // the interpreted value; empty before
  bool usable = false;     // false: reported, or absent
};

// A key that is not in the table.
struct UnknownKey {
  std::string_view section;  // the path of the section's row
  std::string path;          // as the user spelled it
  const Member* member;
};

struct Collected {
  std::vector<ParsedValue> given;
  std::vector<UnknownKey> unknown;
};

// "zero_core.param_groups.norms.lr_scale": the row's path with the name in place of "*".
std::string path_of(const ParsedValue& given);

// Returns the value of `given` with this path; null: not in the file.
const ParsedValue* find(const std::vector<ParsedValue>& given, std::string_view path);

}  // namespace zero::config_schemas
