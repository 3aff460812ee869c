// JSON from others: checked for depth, duplicate keys and fractions before a value is made of it,
// and read field by field with messages that name the field.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace zero::checkpoint {

using Json = nlohmann::json;

// Throws LoadError starting with `path`.
Json parse_json(const std::string& path, std::string_view text);

// One object of the document.
class Fields {
 public:
  Fields(const std::string& path, std::string where, const Json& object);

  const Json& at(const char* key) const;
  std::string text(const char* key) const;
  std::int64_t integer(const char* key, std::int64_t least = 0) const;  // no smaller than `least`
  bool boolean(const char* key) const;
  const Json& array(const char* key) const;
  std::map<std::string, std::string> texts(const char* key) const;
  std::vector<std::string> list(const char* key) const;
  [[noreturn]] void refuse(const std::string& problem) const;

 private:
  const std::string& path_;
  std::string where_;
  const Json& object_;
};

}  // namespace zero::checkpoint
