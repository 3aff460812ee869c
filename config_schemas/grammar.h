// What DeepSpeed's reader takes beside JSON.
#pragma once

#include <string>
#include <string_view>

namespace zero::config_schemas {

// Comments (#, //, /* */) and commas before a closing bracket become blanks, so that every other
// character keeps its line and column.
std::string plain_json(std::string_view text);

}  // namespace zero::config_schemas
