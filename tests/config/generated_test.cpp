// The stored JSON Schema and docs/config.md must equal the documents made from the key table. If
// ZERO_UPDATE_GENERATED=1 is in the environment, they are written instead.
#include "tests/config/generate.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "config_schemas/document.h"
#include "config_schemas/keys.h"
#include "tests/config/config_support.h"

using namespace zero::config_schemas;
using namespace zero::tests;

namespace {

void check_stored(const std::string& name, const std::string& expected) {
  const std::string file = std::string(ZERO_SOURCE_DIR) + "/" + name;
  if (std::getenv("ZERO_UPDATE_GENERATED") != nullptr) {
    std::ofstream output(file);
    output << expected;
    REQUIRE(output.flush());
  }
  std::ifstream input(file);
  std::ostringstream text;
  text << input.rdbuf();
  INFO(name << " is not what the key table makes: run ZERO_UPDATE_GENERATED=1 config_test");
  CHECK((text.str() == expected));
}

}  // namespace

TEST_CASE("the stored schema and document are up to date") {
  check_stored("config_schemas/ds_config.schema.json", json_schema());
  check_stored("docs/config.md", config_document());
}

TEST_CASE("the schema is JSON and contains every key") {
  const Document schema = parse_document(json_schema());
  CHECK(schema.readable);
  CHECK(schema.problems.empty());
  const std::string text = config_document();
  for (const Key& key : keys()) CHECK(has(text, "`" + key.path + "`"));
}
