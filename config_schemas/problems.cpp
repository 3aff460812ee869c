#include "config_schemas/problems.h"

#include <algorithm>
#include <tuple>

#include "zero/base/error.h"

namespace zero::config_schemas {
namespace {

constexpr std::size_t most_kept = 100;

std::string advice(const Guess& guess, const std::string& path) {
  if (guess.kind == Guess::Kind::elsewhere) return "its place is " + guess.path;
  if (guess.kind != Guess::Kind::none) return "nearest known key: " + guess.path;
  const std::string section(section_of(path));
  return section.empty()
             ? "docs/config.md lists those that are known"
             : "zero config explain " + printable(section) + " lists those that are known";
}

}  // namespace

int ProblemList::add_file(std::string file) {
  files_.push_back(std::move(file));
  return static_cast<int>(files_.size()) - 1;
}

void ProblemList::add(Position position, std::string text) {
  if (problems_.size() < most_kept)
    problems_.push_back({position, std::move(text)});
  else
    ++not_kept_;
}

void ProblemList::unknown_key(Position position, const std::string& path) {
  // A search for the nearest key takes time, so a hostile file must not trigger many searches.
  const bool kept = problems_.size() < most_kept;
  unknown_key(position, path, kept ? guess_key(path) : Guess{});
}

void ProblemList::unknown_key(Position position, const std::string& path, const Guess& guess) {
  add(position, printable(path) + ": unknown key; " + advice(guess, path));
}

std::string ProblemList::place(Position at) const {
  if (at.line == 0) return "override";
  return files_[static_cast<std::size_t>(at.file)] + ":" + std::to_string(at.line) + ":" +
         std::to_string(at.column);
}

void ProblemList::throw_if_any() const {
  if (problems_.empty()) return;
  std::vector<Problem> sorted = problems_;
  std::ranges::stable_sort(sorted, {}, [](const Problem& problem) {
    const Position& at = problem.position;
    return std::tuple(at.line == 0, at.file, at.line, at.column);  // overrides last
  });
  std::string message;
  for (const Problem& problem : sorted) {
    const Position& at = problem.position;
    if (!message.empty()) message += '\n';
    message += place(at) + ": " + problem.text;
  }
  if (not_kept_ > 0)
    message += "\n" + files_.front() + ": and " + std::to_string(not_kept_) + " more problems";
  throw ConfigError(message);
}

}  // namespace zero::config_schemas
