#include "config_schemas/document.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/config/config_support.h"

using namespace zero::config_schemas;
using zero::tests::has;

namespace {

// Returns "path" -> "line:column" of every value, keys joined with dots.
void places(const Node& node, const std::string& path, std::map<std::string, std::string>& result) {
  result[path] = std::to_string(node.position.line) + ":" + std::to_string(node.position.column);
  for (std::size_t i = 0; i < node.members.size(); ++i) {
    const std::string name =
        node.kind == Node::Kind::array ? std::to_string(i) : node.members[i].key;
    places(node.members[i].value, path + "." + name, result);
  }
}

std::string first_problem(std::string_view text) {
  const Document document = parse_document(text);
  REQUIRE_FALSE(document.readable);
  REQUIRE(document.problems.size() == 1);
  const Problem& problem = document.problems[0];
  return std::to_string(problem.position.line) + ":" + std::to_string(problem.position.column) +
         ": " + problem.text;
}

}  // namespace

TEST_CASE("every value has its line and column") {
  const Document document = parse_document(
      "{\n"
      "  \"a\" : 12,\n"
      "\t\"b\":[true , -1.5e3,\"x,]\\\"}\"],\n"
      "  \"k\\u00e9y é\": {\"d\": null}, \"e\":{ },\r\n"
      "\"f\"\n:\n\n  [ ]}\n");
  REQUIRE(document.readable);
  CHECK(document.problems.empty());
  std::map<std::string, std::string> at;
  places(document.root, "", at);
  CHECK(at[""] == "1:1");
  CHECK(at[".a"] == "2:9");
  CHECK(at[".b"] == "3:6");
  CHECK(at[".b.0"] == "3:7");
  CHECK(at[".b.1"] == "3:14");
  CHECK(at[".b.2"] == "3:21");
  CHECK(at[".kéy é"] == "4:17");
  CHECK(at[".kéy é.d"] == "4:23");
  CHECK(at[".e"] == "4:34");
  CHECK(at[".f"] == "8:3");
  CHECK(document.root.members[1].position.line == 3);
  CHECK(document.root.members[1].position.column == 2);
  CHECK(document.root.members[1].value.members[1].value.text == "-1.5e3");
  CHECK(document.root.members[1].value.members[2].value.text == "x,]\"}");
}

TEST_CASE("a UTF-8 byte order mark is skipped") {
  const Document document = parse_document("\xef\xbb\xbf{\"a\": 1}");
  REQUIRE(document.readable);
  CHECK(document.root.position.column == 1);
}

TEST_CASE("malformed text: line, column and the expected text") {
  const struct {
    std::string_view text, start, part;
  } cases[] = {
      {"", "1:1: ", "is empty"},
      {" \n\t", "1:1: ", "is empty"},
      {"{", "1:2: ", "ends inside of an object that opens in line 1, column 1"},
      {"{\n  \"a\" 1}", "2:7: ", "expected ':' behind the key a"},
      {"{,}", "1:2: ", "expected a key, not ','"},
      {"{:1}", "1:2: ", "expected a key before ':'"},
      {"{a b: 1}", "1:4: ", "expected ':'"},
      {"{\"a\": 1,,}", "1:9: ", "expected a key"},
      {"{\"a\":}", "1:6: ", "expected a value, not '}'"},
      {"[,]", "1:2: ", "expected a value, not ','"},
      {"[1,,]", "1:4: ", "expected a value"},
      {"[1, 2", "1:6: ", "ends inside of an array"},
      {"{\"a\": 1} x", "1:10: ", "behind the end"},
      {"{\"a\": 1} 22", "1:10: ", "behind the end"},
      {"{\"a\": truee}", "1:13: ", "line 1, column 7 continues to the end of its line"},
      {"{\"a\": \"x", "1:7: ", "closing quote"},
      {"{\"a\": 'x\"}", "1:7: ", "closing quote"},
      {"{\"a\": '''x'''}", "1:7: ", "several lines"},
      {"{\"a\": \"\\q\"}", "1:8: ", "escape"},
      {"{\"a\": \"\\", "1:8: ", "escape"},
      {"{\"a\": \"\\u12g4\"}", "1:8: ", "hexadecimal"},
      {"{\"a\": \"\\u12", "1:8: ", "hexadecimal"},
      {"{\"a\": \"\\ud800\"}", "1:8: ", "surrogate"},
      {"{\"a\": \"\\udc00\\ud800\"}", "1:8: ", "surrogate"},
      {"{\"a\": \"x\ny\"}", "1:9: ", "control character"},
      {"{\"a\": 1 /* open", "1:9: ", "never ends"},
      {"{\"a\": \"\xff\"}", "1:8: ", "UTF-8"},
      {"\"\xc0\x80\"", "1:2: ", "UTF-8"},
      {"\"\xed\xa0\x80\"", "1:2: ", "UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "1:2: ", "UTF-8"},
      {"\"\xe2\x82", "1:2: ", "UTF-8"},
      {"\xff\xfe{\0", "1:1: ", "UTF-16"},
      {std::string_view("{\"a\": 1}\0", 9), "1:1: ", "NUL"},
  };
  for (const auto& c : cases) {
    const std::string problem = first_problem(c.text);
    CAPTURE(std::string(c.text));
    CAPTURE(problem);
    CHECK(problem.starts_with(c.start));
    CHECK(has(problem, c.part));
  }
}

TEST_CASE("duplicate keys are found at every depth, all of them") {
  const Document document =
      parse_document("{\"a\": 1,\n \"b\": [{\"c\": 1, \"c\": 2}],\n \"a\": 3, \"\\u0061\": 4}");
  REQUIRE(document.readable);
  REQUIRE(document.problems.size() == 3);
  CHECK(document.problems[0].text == "duplicate key \"c\", first given in line 2");
  CHECK(document.problems[0].position.line == 2);
  CHECK(document.problems[0].position.column == 17);
  CHECK(document.problems[1].text == "duplicate key \"a\", first given in line 1");
  CHECK(document.problems[2].position.line == 3);
}

TEST_CASE("limits hold, each at its value and one beyond") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(parse_document(nested(max_document_depth)).readable);
  CHECK(has(first_problem(nested(max_document_depth + 1)), "nested deeper"));
  CHECK(has(first_problem(std::string(1'000'000, '[')), "nested deeper"));

  const auto many = [](std::size_t count) {
    std::string text = "{\"k0\": 0";
    for (std::size_t i = 1; i < count; ++i) text += ",\"k" + std::to_string(i) + "\":0";
    return text + "}";
  };
  CHECK(parse_document(many(max_document_keys)).readable);
  CHECK(has(first_problem(many(max_document_keys + 1)), "more than 10000"));

  const auto text_of = [](std::size_t bytes) { return "[\"" + std::string(bytes, 'x') + "\"]"; };
  CHECK(parse_document(text_of(max_string_bytes)).readable);
  CHECK(has(first_problem(text_of(max_string_bytes + 1)), "longer than 64 KiB"));
  const std::string key = "{\"" + std::string(max_string_bytes + 1, 'x') + "\": 1}";
  CHECK(has(first_problem(key), "longer than 64 KiB"));

  const auto padded = [](std::size_t bytes) { return "{}" + std::string(bytes - 2, ' '); };
  CHECK(parse_document(padded(max_document_bytes)).readable);
  CHECK(has(first_problem(padded(max_document_bytes + 1)), "larger than 1 MiB"));
}
