// Reads a Hugging Face config.json and collects its problems, so that the user sees all at once.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpt {

class ConfigReader {
 public:
  using Json = nlohmann::json;

  // Problems are appended to the text, one per line; the text and the object outlive the reader.
  ConfigReader(const Json& object, std::string& problems, std::string prefix = "")
      : json_(object), problems_(problems), prefix_(std::move(prefix)) {}

  // Far above any model's sizes, and small enough that parameter counts stay within 64 bits.
  static constexpr std::int64_t largest_dimension = 1 << 16, largest_vocabulary = 1 << 24;

  // Returns whether the key is present and not null.
  bool has(const std::string& key) const;
  // For all readers null is the same as a missing key. dimension() returns 1 if the key is missing
  // or the value is wrong.
  std::int64_t dimension(const std::string& key, std::int64_t largest = largest_dimension);
  // Reads a positive number. The fallback replaces a missing key; without a fallback the key is
  // required.
  double number(const std::string& key, double fallback);
  double number(const std::string& key);
  bool flag(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::string& fallback);
  // Returns a reader of the object under the key; none if missing, null or wrong.
  std::optional<ConfigReader> object(const std::string& key);

  // Returns these keys as in the file, for keys that are only copied.
  Json copy(const std::vector<std::string>& keys) const;

  // Returns all keys that are not null.
  std::vector<std::string> keys() const;

  // If the key is present, it must hold one of the values.
  void require(const std::string& key, const std::vector<Json>& allowed);
  // Every key of the object must be one of these; `whose` names the owner in messages.
  void require_keys(const std::vector<std::string>& known, const std::string& whose);
  void problem(const std::string& text) { problems_ += "\n  " + prefix_ + text; }

 private:
  const Json& json_;
  std::string& problems_;
  std::string prefix_;  // for example "rope_scaling."
};

}  // namespace gpt
