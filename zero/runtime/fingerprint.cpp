#include "zero/runtime/fingerprint.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "zero/base/error.h"
#include "zero/base/hash.h"
#include "zero/base/text.h"

namespace zero::detail {

namespace {

constexpr std::size_t most_differences = 8;   // per message
constexpr std::size_t most_listed_ranks = 8;  // per value
constexpr std::size_t most_shown_bytes = 120;

// Names and values may contain any byte but this.
constexpr char end_of_text = '\0';

std::string packed(const Text& values) {
  std::string text;
  for (const auto& [name, value] : values) text += name + end_of_text + value + end_of_text;
  return text;
}

Text unpacked(const std::string& text) {
  Text values;
  std::istringstream parts(text);
  for (std::string name; std::getline(parts, name, end_of_text);)
    std::getline(parts, values[name], end_of_text);
  return values;
}

std::string shown(const std::string& value) {
  if (value.empty()) return "\"\"";
  return value.size() <= most_shown_bytes ? value : value.substr(0, most_shown_bytes) + "...";
}

}  // namespace

std::string text_of_hash(std::uint64_t hash) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string list_of_ranks(const char* noun, const std::vector<std::size_t>& ranks) {
  std::vector<std::string> numbers;
  for (const std::size_t rank : ranks) numbers.push_back(std::to_string(rank));
  return noun + std::string(ranks.size() > 1 ? "s " : " ") + list_of(numbers, most_listed_ranks);
}

std::string who_has_what(const char* noun, const std::vector<std::string>& value_of_rank) {
  std::string text;
  std::set<std::string> done;
  for (const std::string& value : value_of_rank) {
    if (!done.insert(value).second) continue;
    std::vector<std::size_t> holders;
    for (std::size_t rank = 0; rank < value_of_rank.size(); ++rank)
      if (value_of_rank[rank] == value) holders.push_back(rank);
    text += (text.empty() ? "" : ", ") + list_of_ranks(noun, holders) +
            (holders.size() > 1 ? " have " : " has ") + value;
  }
  return text;
}

void agree_on_values(Ranks& ranks, const Text& values) {
  if (ranks.topology().size == 1 || values.empty()) return;
  const std::string subject =
      "the comparison of " + values.begin()->first +
      (values.size() > 1 ? " and " + std::to_string(values.size() - 1) + " more values" : "");
  const std::string own = packed(values);
  if (ranks.all_have(subject, own)) return;
  const std::vector<std::string> texts = ranks.gather_texts(subject, own);
  // The values of every name, by rank; empty if a rank lacks the name.
  std::map<std::string, std::vector<std::optional<std::string>>> found;
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    for (const auto& [name, value] : unpacked(texts[rank])) {
      found[name].resize(texts.size());
      found[name][rank] = value;
    }
  std::string differences;
  std::size_t count = 0;
  for (const auto& [name, value_of_rank] : found) {
    if (std::ranges::count(value_of_rank, value_of_rank[0]) == std::ssize(value_of_rank)) continue;
    if (++count > most_differences) continue;
    std::vector<std::string> listed;
    for (const auto& value : value_of_rank)
      listed.push_back(value ? shown(*value) : "no such value");
    differences += "\n  " + name + ": " + who_has_what(ranks.noun(), listed);
  }
  if (count > most_differences)
    differences += "\n  and " + std::to_string(count - most_differences) + " more";
  throw DisagreementError(ranks.noun() +
                          std::string("s differ in values that must be equal on all; start every "
                                      "one with the same options and files:") +
                          differences);
}

}  // namespace zero::detail
