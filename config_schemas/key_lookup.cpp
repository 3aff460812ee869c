#include <algorithm>
#include <cctype>
#include <map>

#include "config_schemas/keys.h"

namespace zero::config_schemas {
namespace {

using Index = std::map<std::string, const Key*, std::less<>>;

// Every spelling of every path.
const Index& spellings() {
  static const Index index = [] {
    Index result;
    for (const Key& key : keys()) {
      result.emplace(key.path, &key);
      if (!key.alias.empty()) result.emplace(join(section_of(key.path), key.alias), &key);
    }
    return result;
  }();
  return index;
}

// Insertions, deletions, replacements and swaps of neighbours that lead from one to the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// "num_warmup_steps" and "warmup_num_steps" have the same words.
std::string sorted_words(std::string_view name) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('_', begin), name.size());
    words.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  std::ranges::sort(words);
  std::string result;
  for (const auto word : words) result += std::string(word) + "_";
  return result;
}

// How far a name is from a known one: misspelt, with its words in another order, or cut short.
std::size_t name_distance(std::string_view name, std::string_view known) {
  std::size_t distance = std::min(edit_distance(name, known),
                                  edit_distance(sorted_words(name), sorted_words(known)) + 1);
  const bool part = name.size() >= 4 && (known.starts_with(name) || known.ends_with(name));
  return part ? std::min<std::size_t>(distance, 3) : distance;
}

// The path as the table would write it, as far as the table knows it.
std::string table_path(std::string_view path) {
  std::string known;
  while (true) {
    const std::string_view name = path.substr(0, path.find('.'));
    const Key* key = find_key(known, name);
    if (key == nullptr || name.size() == path.size()) return join(known, path);
    known = key->path;
    path.remove_prefix(name.size() + 1);
  }
}

}  // namespace

const Key* find_key(std::string_view path) {
  const auto found = spellings().find(path);
  return found == spellings().end() ? nullptr : found->second;
}

const Key* find_key(std::string_view section, std::string_view name) {
  // A dot in a name would reach into another section, a star would be taken for any name.
  if (name.find_first_of(".*") == std::string_view::npos)
    if (const Key* key = find_key(join(section, name))) return key;
  return find_key(join(section, "*"));
}

std::string nearest_key(std::string_view path) {
  constexpr std::size_t longest = 96;  // more letters are noise, and would cost time
  const std::string wanted = lower_case(table_path(path.substr(0, longest)));
  std::string best;
  std::size_t best_score = std::string::npos;
  for (const auto& [candidate, key] : spellings()) {
    if (key->meaning == says_nothing) continue;
    std::size_t score = name_distance(last_name(wanted), last_name(candidate));
    // A key of the same section is more likely meant than one of another, which must be near.
    if (section_of(candidate) != section_of(wanted)) {
      score = std::min(score + (score == 0 ? 1 : 2), edit_distance(wanted, candidate));
      if (2 * score > last_name(wanted).size()) score += longest;
    }
    if (score >= best_score || last_name(candidate) == "*") continue;
    best_score = score;
    best = candidate;
  }
  if (const auto star = best.find('*'); star != std::string::npos) best.replace(star, 1, "NAME");
  return best;
}

std::string_view section_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string join(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
}

std::string_view last_name(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

bool belongs_to(const Key& key, std::string_view type) {
  return std::ranges::any_of(key.belongs_to,
                             [&](auto owner) { return lower_case(owner) == lower_case(type); });
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

bool converts_values(std::string_view path) {
  constexpr std::string_view closed[] = {
      "zero_optimization", "fp16",  "bf16",    "comms_logger",      "wandb",    "tensorboard",
      "csv_monitor",       "comet", "compile", "timers.throughput", "zero_core"};
  return std::ranges::any_of(closed, [&](std::string_view section) {
    return path == section ||
           (path.starts_with(section) && path.substr(section.size()).starts_with('.'));
  });
}

bool is_comment(std::string_view name) {
  return name.starts_with('_');
}

}  // namespace zero::config_schemas
