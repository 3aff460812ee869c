#include "config_schemas/grammar.h"

#include <doctest/doctest.h>

#include "tests/config/config_support.h"

using namespace zero;
using zero::config_schemas::plain_json;
using zero::tests::has;
using zero::tests::parse;
using zero::tests::refusal;

TEST_CASE("comments and commas before a closing bracket become blanks") {
  CHECK(plain_json("{\"a\": 1, # one\n}") == "{\"a\": 1       \n}");
  CHECK(plain_json("[1, /* two\n*/ 2, // end\n]") == "[1,       \n   2        \n]");
  CHECK(plain_json("[[1,],\n]") == "[[1 ] \n]");
  CHECK(plain_json("[1,] # h\xc3\xa4lt") == "[1 ]       ");
  CHECK(plain_json("/**/[]//") == "    []  ");
}

TEST_CASE("strings are left alone") {
  for (const char* text : {R"(["# // /* ,]"])", R"(["\"#", "\\", "#"])", R"(["\n\"#\\\""])",
                           "[\"\"]", "[\"unclosed # x", "[\"\\", "\""})
    CHECK(plain_json(text) == text);
}

TEST_CASE("commas that are mistakes stay") {
  for (const char* text : {"{,}", "[,]", "[1,,]", "{\"a\":,}", ",", ",]"})
    CHECK(plain_json(text) == text);
  CHECK(has(refusal("[1,,]"), "ds.json:1:4: not valid JSON"));
  CHECK(has(refusal("{\"a\": 1 /* open"), "ds.json:1:9: not valid JSON"));
}

TEST_CASE("a commented config; positions behind comments hold") {
  const Config config = parse(
      "# the first line\n"
      "{\n"
      "  \"train_batch_size\": 8, // samples\n"
      "  /* the \"stage\": 3 */ \"zero_optimization\": {\"stage\": 2,},\n"
      "  \"_comment\": [\"anything\"],\n"
      "}\n");
  CHECK(config.batch.train_batch_size == 8);
  CHECK(config.zero_optimization.stage == 2);
  CHECK(refusal("{ /* \xc3\xa4 */ \"seed\": true} # x") ==
        "ds.json:1:19: seed: true is not an integer; allowed: an integer of at least 0");
}
