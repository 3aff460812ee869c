#include "zero/checkpoint/format/json.h"

#include <limits>
#include <set>

#include "zero/base/error.h"
#include "zero/checkpoint/format/safetensors.h"

namespace zero::checkpoint {
namespace {

constexpr int deepest = 8;
constexpr std::size_t longest_text = std::size_t{64} << 20;  // client_state may be large

// Returns the problem of a value that is no object or array, or "".
std::string value_problem(const Json& value) {
  if (value.is_null()) return "has null";
  if (value.is_number_float()) return "has a number with a fraction or exponent";
  if (value.is_number_integer() && !value.is_number_unsigned()) return "has a negative number";
  if (value.is_number() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    return "has the number " + value.dump() + ", which is too large";
  if (value.is_string() && value.get_ref<const std::string&>().size() > longest_text)
    return "has a string of more than 64 MiB";
  return "";
}

}  // namespace

Json scan_json(const std::string& path, std::string_view text,
               const Json::parser_callback_t& visitor) {
  using Event = Json::parse_event_t;
  std::string field;  // field of the top-level object, with a colon, for messages
  const auto refuse = [&](const std::string& problem) {
    if (!problem.empty()) throw LoadError(path + ": " + field + problem);
  };
  // The parser would treat a NUL as the end of the text.
  if (text.find('\0') != std::string_view::npos) refuse("contains a NUL byte");
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Event event, Json& value) {
    if ((event == Event::object_start || event == Event::array_start) && depth == deepest)
      refuse("is nested more than 8 levels deep");
    if (event == Event::value) refuse(value_problem(value));
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const std::string name = in_quotes(value.get_ref<const std::string&>());
      if (depth == 1) field = name + ": ";
      if (!keys.back().insert(value.get<std::string>()).second)
        refuse("has the key " + name + " twice");
    }
    return visitor(depth, event, value);
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::parse_error& error) {
    refuse("is not valid JSON at its byte " + std::to_string(error.byte));
  } catch (const Json::out_of_range&) {
    refuse("has a number that is too large");
  }
  return {};  // not reached
}

std::string dump(const Json& json, const std::string& what) {
  try {
    return json.dump();
  } catch (const Json::type_error&) {
    throw UsageError(what + " is not UTF-8 and cannot be saved: " +
                     json.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 200));
  }
}

JsonReader::JsonReader(std::string where, const Json& object)
    : where_(std::move(where)), object_(object) {
  if (!object.is_object()) refuse("an object belongs here");
}

void JsonReader::refuse(const std::string& problem) const {
  throw LoadError(where_ + ": " + problem);
}

const Json& JsonReader::at(const char* key) const {
  if (!object_.contains(place_of(key))) refuse("the field " + quoted(key) + " is missing");
  return object_.at(place_of(key));
}

}  // namespace zero::checkpoint
