// Documents made from the key table: the JSON Schema with which editors check configs, and
// docs/config.md. A test keeps the stored files equal to these.
#pragma once

#include <string>

namespace zero::tests {

std::string json_schema();
std::string config_document();

}  // namespace zero::tests
