// Reads a Hugging Face config.json and collects what is wrong with it, so that the user sees all of
// it at once.
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

  // Problems are appended to the text, a line each; it and the object outlive the reader.
  ConfigReader(const Json& object, std::string& problems, std::string prefix = "")
      : json_(object), problems_(problems), prefix_(std::move(prefix)) {}

  // Far above any model, and small enough that parameter counts stay within 64 bits.
  static constexpr std::int64_t largest_dimension = 1 << 16, largest_vocabulary = 1 << 24;

  // Whether the key is there and not null.
  bool has(const std::string& key) const;
  // Everywhere null is the same as a missing key.
  // 1 where it is missing or wrong.
  std::int64_t dimension(const std::string& key, std::int64_t largest = largest_dimension);
  // The fallback stands for a missing key. A positive number, and one that must be there.
  double number(const std::string& key, double fallback);
  double number(const std::string& key);
  bool flag(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::string& fallback);
  // A reader of the object under the key; none where it is missing, null or wrong.
  std::optional<ConfigReader> object(const std::string& key);

  // These keys as they are in the file, for those that only pass through.
  Json copy(const std::vector<std::string>& keys) const;

  // All that are not null.
  std::vector<std::string> keys() const;

  // The key may be absent; otherwise it must hold one of the values.
  void require(const std::string& key, const std::vector<Json>& allowed);
  // Every key of the object must be one of these; `whose` has no others.
  void require_keys(const std::vector<std::string>& known, const std::string& whose);
  void problem(const std::string& text) { problems_ += "\n  " + prefix_ + text; }

 private:
  const Json& json_;
  std::string& problems_;
  std::string prefix_;  // "rope_scaling."
};

}  // namespace gpt
