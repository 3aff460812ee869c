#include "zero/checkpoint/manifest_json.h"

#include <limits>
#include <set>

#include "zero/base/error.h"
#include "zero/checkpoint/safetensors_header.h"

namespace zero::checkpoint {
namespace {

constexpr std::size_t deepest = 8;
constexpr std::size_t longest_text = std::size_t{64} << 20;  // client_state may be large

class Screen final : public nlohmann::json_sax<Json> {
 public:
  const std::string& problem() const { return problem_; }

  bool null() override { return refuse("has null"); }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return refuse("has a negative number"); }
  bool number_unsigned(number_unsigned_t value) override {
    return value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
           refuse("has the number " + std::to_string(value) + ", which is too large");
  }
  bool number_float(number_float_t, const string_t&) override {
    return refuse("has a number with a fraction or exponent");
  }
  bool string(string_t& value) override {
    return value.size() <= longest_text || refuse("has a string of more than 64 MiB");
  }
  bool binary(binary_t&) override { return refuse("has binary data"); }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return deeper();
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool key(string_t& value) override {
    return keys_.back().insert(value).second ||
           refuse("has the key " + in_quotes(value) + " twice");
  }
  bool start_array(std::size_t) override { return deeper(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return refuse("is not valid JSON at its byte " + std::to_string(position));
  }

 private:
  bool refuse(const std::string& problem) {
    problem_ = problem;
    return false;
  }
  bool deeper() { return ++depth_ <= deepest || refuse("is nested more than 8 levels deep"); }

  std::string problem_;
  std::vector<std::set<std::string>> keys_;
  std::size_t depth_ = 0;
};

}  // namespace

Json parse_json(const std::string& path, std::string_view text) {
  if (text.find('\0') != std::string_view::npos) throw LoadError(path + ": contains a NUL byte");
  Screen screen;
  if (!Json::sax_parse(text.begin(), text.end(), &screen))
    throw LoadError(path + ": " + screen.problem());
  Json document = Json::parse(text.begin(), text.end());
  if (!document.is_object()) throw LoadError(path + ": is not a JSON object");
  return document;
}

Fields::Fields(const std::string& path, std::string where, const Json& object)
    : path_(path), where_(std::move(where)), object_(object) {
  if (!object.is_object()) refuse("an object belongs here");
}

void Fields::refuse(const std::string& problem) const {
  throw LoadError(path_ + ": " + (where_.empty() ? "" : where_ + ": ") + problem);
}

const Json& Fields::at(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) refuse(std::string("the field \"") + key + "\" is missing");
  return *found;
}

std::string Fields::text(const char* key) const {
  const Json& value = at(key);
  if (!value.is_string()) refuse(std::string("\"") + key + "\" must be a string");
  return value.get<std::string>();
}

std::int64_t Fields::integer(const char* key, std::int64_t least) const {
  const Json& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::int64_t>() < least)
    refuse(std::string("\"") + key + "\" must be an integer of at least " + std::to_string(least));
  return value.get<std::int64_t>();
}

bool Fields::boolean(const char* key) const {
  const Json& value = at(key);
  if (!value.is_boolean()) refuse(std::string("\"") + key + "\" must be true or false");
  return value.get<bool>();
}

const Json& Fields::array(const char* key) const {
  const Json& value = at(key);
  if (!value.is_array()) refuse(std::string("\"") + key + "\" must be an array");
  return value;
}

std::map<std::string, std::string> Fields::texts(const char* key) const {
  const Json& object = at(key);
  if (!object.is_object()) refuse(std::string("\"") + key + "\" must be an object of strings");
  std::map<std::string, std::string> result;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_string()) refuse(std::string("\"") + key + "\" must be an object of strings");
    result[name] = value.get<std::string>();
  }
  return result;
}

std::vector<std::string> Fields::list(const char* key) const {
  std::vector<std::string> result;
  for (const Json& value : array(key)) {
    if (!value.is_string()) refuse(std::string("\"") + key + "\" must be an array of strings");
    result.push_back(value.get<std::string>());
  }
  return result;
}

}  // namespace zero::checkpoint
