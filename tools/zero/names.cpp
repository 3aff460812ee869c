// zero names: whether the Python package has a name of DeepSpeed, or why not. The table is made
// from the package by tests/pytorch/python/deepspeed_names.py.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/zero/commands.h"
#include "zero/base/spelling.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

// Lines: "there", "refused: REASON" or "missing", and below each "MODULE: NAME NAME ...". The name
// "*" is the module itself.
constexpr std::string_view deepspeed_names[] = {
#include <deepspeed_names.inl>
};

constexpr std::size_t most_shown = 40;

struct Name {
  std::string full, last, state;
};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string_view::npos ? "" : text.substr(begin);
}

std::vector<Name> all_names() {
  std::vector<Name> names;
  std::string state;
  for (const std::string_view line : deepspeed_names) {
    if (!line.starts_with("deepspeed")) {
      state = line;
      continue;
    }
    const std::size_t colon = line.find(": ");
    const std::string module(line.substr(0, colon));
    std::string_view rest = line.substr(colon + 2);
    while (!(rest = trimmed(rest)).empty()) {
      const std::string name(rest.substr(0, rest.find(' ')));
      rest.remove_prefix(name.size());
      const bool whole = name == "*";
      names.push_back({whole ? module : module + "." + name,
                       whole ? module.substr(module.rfind('.') + 1) : name, state});
    }
  }
  return names;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

void print(const std::vector<const Name*>& found) {
  const std::size_t shown = std::min(found.size(), most_shown);
  std::size_t width = 0;
  for (std::size_t i = 0; i < shown; ++i) width = std::max(width, found[i]->full.size());
  for (std::size_t i = 0; i < shown; ++i)
    std::printf("%-*s  %s\n", static_cast<int>(width), found[i]->full.c_str(),
                found[i]->state.c_str());
  if (found.size() > shown) std::printf("and %zu more\n", found.size() - shown);
}

// The exact names come first.
void show_names(const std::string& word) {
  const std::vector<Name> names = all_names();
  const std::string wanted = lower(word);
  std::vector<const Name*> found, parts;
  std::vector<std::string> known;
  for (const Name& name : names) {
    known.push_back(name.last);
    if (name.last == word || name.full == word)
      found.push_back(&name);
    else if (lower(name.full).find(wanted) != std::string::npos)
      parts.push_back(&name);
  }
  found.insert(found.end(), parts.begin(), parts.end());
  if (found.empty())
    throw ConfigError("DeepSpeed has no name with " + printable(word) +
                      hint_for(word.substr(word.rfind('.') + 1), known));
  print(found);
}

}  // namespace

void add_names(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "names", "Say whether the Python package has a name of DeepSpeed, or why not");
  auto word = std::make_shared<std::string>();
  command->add_option("WORD", *word, "A name, or a part of one")->required();
  command->callback([word] { show_names(*word); });
}

}  // namespace zero::tool
