// A document with the line and column of every key and value, so that messages point into the
// user's file. Nothing is interpreted here: numbers stay as written.
//
// The grammar is Hjson's (hjson.github.io), as read by the Python library that DeepSpeed uses:
// JSON; comments (#, //, /* */); commas may be missing or precede a closing bracket; keys, strings
// and the outermost object need no quotes or braces. Only multi-line strings are not read, and half
// surrogate pairs are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zero::config_schemas {

// Limits of a document, and the message if one is exceeded.
constexpr std::size_t max_document_bytes = std::size_t{1} << 20;
constexpr std::size_t max_document_keys = 10'000;  // keys and array elements
constexpr std::size_t max_document_depth = 32;
constexpr std::size_t max_string_bytes = std::size_t{64} << 10;
constexpr const char* too_large = "larger than 1 MiB";
constexpr const char* too_many_keys = "more than 10000 keys and array elements";
constexpr const char* too_deep = "nested deeper than 32 levels";
constexpr const char* too_long_string = "a string is longer than 64 KiB";
constexpr const char* has_nul = "contains a NUL byte: not a text file";

// Line and column count from 1, columns in characters. Line 0: not from a file. `file`: 0, or the
// result of ProblemList::add_file().
struct Position {
  std::int64_t line = 0, column = 0;
  int file = 0;
};

struct Problem {
  Position position;
  std::string text;
};

struct Member;

struct Node {
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  Position position;
  std::string text;             // a string's characters; any other scalar as written
  std::vector<Member> members;  // of objects, and of arrays (with empty keys)
};

struct Member {
  std::string key;
  Position position;
  Node value;
};

// Returns null if the node is no object or has no such key.
Member* find_member(Node& object, std::string_view key);
const Member* find_member(const Node& object, std::string_view key);

// Returns true if the value is the string "auto".
bool is_auto(const Node& node);

// Returns the problem that makes a text unreadable as a whole, such as a byte that is not UTF-8.
std::optional<Problem> unsuitable(std::string_view text);

struct Document {
  bool readable = false;  // false: `problems` has the reason, `root` is empty
  Node root;
  std::vector<Problem> problems;  // of a readable document: duplicate keys
};

// Returns the problem of a key that is given twice.
Problem duplicate_key(const std::string& key, Position position, std::int64_t first_line);

// Parses UTF-8, optionally with a byte order mark, within the limits above. Time and memory are
// proportional to the text, even if malformed; throws nothing itself.
Document parse_document(std::string_view text);
// Parses one value, in the syntax of a document.
Document parse_value(std::string_view text);
// Parses one YAML document, and nothing after it, within the same limits; no aliases. Scalars are
// read by YAML 1.1. If built without yaml-cpp (no_yaml.cpp), returns a problem that states this.
Document parse_yaml(std::string_view text);
// Returns true if the text, after blanks and comments, begins with a bracket, as JSON does.
bool begins_with_bracket(std::string_view text);

}  // namespace zero::config_schemas
