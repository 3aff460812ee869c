// Parses untrusted JSON: depth, duplicate keys and fractions are checked before a value is made,
// and messages name the field. A format is a function over fields, which JsonReader calls to read
// and JsonWriter to write.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace zero::checkpoint {

using Json = nlohmann::json;

// Passes each event of the parser to the visitor after checking it, and drops values if the visitor
// returns false. Throws LoadError starting with `path`.
Json scan_json(const std::string& path, std::string_view text,
               const Json::parser_callback_t& visitor);
// Parses a document with all values.
inline Json parse_json(const std::string& path, std::string_view text) {
  return scan_json(path, text, [](int, Json::parse_event_t, const Json&) { return true; });
}

// Throws UsageError if a text inside is not UTF-8; `what` names the text.
std::string dump(const Json& json, const std::string& what);

// The expected kind of value, for messages.
template <class T>
constexpr const char* expected = nullptr;
template <>
inline constexpr const char* expected<bool> = "true or false";
template <>
inline constexpr const char* expected<std::int64_t> = "an integer";
template <>
inline constexpr const char* expected<std::string> = "a string";
template <>
inline constexpr const char* expected<std::vector<std::string>> = "an array of strings";
template <>
inline constexpr const char* expected<std::vector<std::int64_t>> = "an array of counts";
template <>
inline constexpr const char* expected<std::map<std::string, std::string>> = "an object of strings";

// A key may lead into objects of the object: "optimizer/type".
inline Json::json_pointer place_of(const char* key) {
  return Json::json_pointer(std::string("/") + key);
}

class JsonReader {
 public:
  // Messages start with `where`, a path and the position in the document.
  JsonReader(std::string where, const Json& object);

  template <class T>
  void operator()(const char* key, T& value) const {
    get(at(key), quoted(key), value);
  }
  // An absent field leaves the value unchanged.
  template <class T>
  void optional(const char* key, T& value, const std::type_identity_t<T>& = {}) const {
    if (object_.contains(place_of(key))) (*this)(key, value);
  }
  template <class T>
  void optional(const char* key, std::optional<T>& value) const {
    if (object_.contains(place_of(key))) (*this)(key, value.emplace());
  }
  // `kind` names an object in messages.
  template <class T, class Each>
  void objects(const char* key, const char* kind, std::vector<T>& values, Each&& fields) const {
    if (!at(key).is_array()) refuse(quoted(key) + " must be an array");
    for (const Json& json : at(key)) {
      JsonReader inner(where_ + ": " + kind + " " + std::to_string(values.size()), json);
      fields(inner, values.emplace_back());
    }
  }
  // Reads the object itself.
  template <class T>
  void get_to(T& value) const {
    get(object_, "it", value);
  }
  [[noreturn]] void refuse(const std::string& problem) const;

 private:
  const Json& at(const char* key) const;
  static std::string quoted(const char* key) { return std::string("\"") + key + "\""; }

  template <class T>
  void get(const Json& json, const std::string& what, T& value) const {
    try {
      json.get_to(value);
      return;
    } catch (const Json::exception&) {
    } catch (const std::invalid_argument&) {
    }
    refuse(what + " must be " + expected<T>);
  }

  std::string where_;
  const Json& object_;
};

class JsonWriter {
 public:
  const Json& json() const { return object_; }

  template <class T>
  void operator()(const char* key, const T& value) {
    object_[place_of(key)] = value;
  }
  // Omitted if equal to the value that a reader then assumes.
  template <class T>
  void optional(const char* key, const T& value, const std::type_identity_t<T>& otherwise = {}) {
    if (value != otherwise) object_[place_of(key)] = value;
  }
  template <class T>
  void optional(const char* key, const std::optional<T>& value) {
    if (value) object_[place_of(key)] = *value;
  }
  template <class T, class Each>
  void objects(const char* key, const char*, const std::vector<T>& values, Each&& fields) {
    Json& array = object_[place_of(key)] = Json::array();
    for (const T& value : values) {
      JsonWriter inner;
      fields(inner, value);
      array.push_back(std::move(inner.object_));
    }
  }

 private:
  Json object_ = Json::object();
};

}  // namespace zero::checkpoint
