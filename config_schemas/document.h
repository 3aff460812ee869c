// A document with the line and column of every key and value, so that messages point into the
// user's file. Nothing is interpreted here: numbers stay as written.
//
// The grammar is Hjson's (hjson.github.io), as the Python library reads it that DeepSpeed loads its
// files with: JSON; comments (#, //, /* */); commas that are missing, or stand before a closing
// bracket; keys, strings and the outermost braces without quotes or braces. Only its strings of
// several lines are not read, and half surrogate pairs are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero::config_schemas {

// Limits of a document, and what is said of one that exceeds them.
constexpr std::size_t max_document_bytes = std::size_t{1} << 20;
constexpr std::size_t max_document_keys = 10'000;  // keys and array elements
constexpr std::size_t max_document_depth = 32;
constexpr std::size_t max_string_bytes = std::size_t{64} << 10;
constexpr const char* too_large = "larger than 1 MiB";
constexpr const char* too_many_keys = "more than 10000 keys and array elements";
constexpr const char* too_deep = "nested deeper than 32 levels";
constexpr const char* too_long_string = "a string is longer than 64 KiB";
constexpr const char* has_nul = "contains a NUL byte: not a text file";

// Counted from 1, columns in characters. Line 0: not from a file. `file`: 0, or what
// ProblemList::add_file() returned.
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

// Null where the node is no object or has no such key.
Member* find_member(Node& object, std::string_view key);
const Member* find_member(const Node& object, std::string_view key);

// Whether the value is the string "auto".
bool is_auto(const Node& node);

struct Document {
  bool readable = false;  // false: `problems` says why, `root` is empty
  Node root;
  std::vector<Problem> problems;  // of a readable document: its duplicate keys
};

// The problem of a key that is given twice.
Problem duplicate_key(const std::string& key, Position position, std::int64_t first_line);

// UTF-8, a byte order mark allowed, within the limits above. Takes time and memory in proportion to
// the text, whatever it is; throws nothing of its own.
Document parse_document(std::string_view text);
// One value, as it may stand in a document.
Document parse_value(std::string_view text);
// One YAML document within the same limits; no aliases. Scalars mean what they mean in YAML 1.1.
// Without yaml-cpp (no_yaml.cpp) a problem that says so.
Document parse_yaml(std::string_view text);
// Whether the text begins with a bracket, as JSON does, behind blanks and comments.
bool begins_with_bracket(std::string_view text);

}  // namespace zero::config_schemas
