// Hjson: the parts of its grammar that JSON does not have.
#include <doctest/doctest.h>

#include "tests/config/config_support.h"
#include "tests/config/document_support.h"

using namespace zero;
using namespace zero::config_schemas;
using zero::tests::has;
using zero::tests::json;
using zero::tests::parse;
using zero::tests::refusal;

namespace {

std::string read(std::string_view text) {
  const Document document = parse_document(text);
  CAPTURE(std::string(text));
  REQUIRE(document.readable);
  return json(document.root);
}

}  // namespace

// Each document was also read by the Python library (hjson 3.1.0).
TEST_CASE("Hjson accepts forms that JSON does not") {
  const struct {
    std::string_view text, json;
  } cases[] = {
      {"{\"a\": 1, # one\n\"b\": 2 // two\n/* \"c\" */}", "{\"a\":1,\"b\":2}"},
      {"{\"a\": [1, 2,], \"b\": {\"c\": null,},}", "{\"a\":[1,2],\"b\":{\"c\":null}}"},
      {"{\"a\": 1\n\"b\": \"x\" \"c\": []\n}", "{\"a\":1,\"b\":\"x\",\"c\":[]}"},
      {"{a: 1, b.c: true}", "{\"a\":1,\"b.c\":true}"},
      {"a: 1\nb: [\n1\n2\n]\n", "{\"a\":1,\"b\":[1,2]}"},
      {"{path: /home/x/run-1, # no comment}\n}", "{\"path\":\"/home/x/run-1, # no comment}\"}"},
      {"{a: 5 rings\nb: 'it is', c: \"a'b\"}", "{\"a\":\"5 rings\",\"b\":\"it is\",\"c\":\"a'b\"}"},
      {"{a: 1e5, b: -0.5e-3 , c: 01\n}", "{\"a\":1e5,\"b\":-0.5e-3,\"c\":\"01\"}"},
      {"{a: NaN\nb: -Infinity\nc: nullable\n}",
       "{\"a\":\"NaN\",\"b\":\"-Infinity\",\"c\":\"nullable\"}"},
      {"{a\n: true}\r\n", "{\"a\":true}"},
      {"{a: x\rb: 2}", "{\"a\":\"x\",\"b\":2}"},
      {"[\"\\u00e9\\ud83d\\ude00\\t\"]", "[\"\xc3\xa9\xf0\x9f\x98\x80\t\"]"},
      {"[\"\\u007f\\u0080\\u07ff\\u0800\"]", "[\"\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\"]"},
      {"/**/[]//", "[]"},
      {"\xef\xbb\xbf{}", "{}"},
  };
  for (const auto& c : cases) CHECK(read(c.text) == c.json);
}

TEST_CASE("comment signs and brackets inside of strings are text") {
  for (const char* text : {R"(["# // /* ,]"])", R"(["\"#","\\","#"])", R"(["{[",":"])"})
    CHECK(read(text).size() > 4);
  CHECK(read(R"(["# // /* ,]"])") == R"(["# // /* ,]"])");
}

TEST_CASE("a single value, as an override gives it") {
  CHECK(json(parse_value("3").root) == "3");
  CHECK(json(parse_value("[0.9, 0.95]").root) == "[0.9,0.95]");
  CHECK(json(parse_value("AdamW").root) == "\"AdamW\"");
  CHECK_FALSE(parse_value("{\"a\": 1").readable);
  CHECK_FALSE(parse_value("").readable);
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
        "ds.json:1:19: seed: true is not an integer; allowed: an integer from 0 to "
        "18446744073709551615");
}

TEST_CASE("numbers that no double or integer holds are refused by the key") {
  CHECK(has(refusal("{\"gradient_clipping\": 1e999}"), "1e999 is not a number"));
  CHECK(has(refusal("{\"gradient_clipping\": NaN\n}"), "\"NaN\" is not a number"));
  CHECK(has(refusal("{\"seed\": " + std::string(400, '9') + "}"), "seed: 999"));
}
