// Parses JSON that a user names, in time proportional to the text. Refuses a NUL byte, which
// nlohmann's parser takes for the end, and a key that an object has twice.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "zero/base/error.h"
#include "zero/base/input_file.h"
#include "zero/base/text.h"

namespace zero {

// Limits the keys of an object. To add a key, an ordered_json looks at all.
template <class Json>
constexpr std::size_t most_json_keys = 1'000'000;
template <>
inline constexpr std::size_t most_json_keys<nlohmann::ordered_json> = 1000;

// Messages begin with `subject`, such as "--model x.json ". Throws ConfigError.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& subject) {
  const auto refuse = [&](const std::string& problem) { throw ConfigError(subject + problem); };
  if (text.find('\0') != std::string_view::npos) refuse("contains a NUL byte: not a text file");
  using Event = nlohmann::detail::parse_event_t;
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int, Event event, Json& value) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event != Event::key) return true;
    const auto& name = value.template get_ref<const std::string&>();
    if (!keys.back().insert(name).second) refuse("has the key \"" + printable(name) + "\" twice");
    if (keys.back().size() > most_json_keys<Json>)
      refuse("has an object of more than " + std::to_string(most_json_keys<Json>) + " keys");
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const nlohmann::detail::parse_error& error) {
    refuse("is not valid JSON, from line " + std::to_string(line_at(text, error.byte)) + " on");
  } catch (const nlohmann::detail::out_of_range&) {
    refuse("has a number that is too large");
  }
  return {};  // not reached
}

}  // namespace zero
