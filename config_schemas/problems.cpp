#include "config_schemas/problems.h"

#include <algorithm>
#include <tuple>

#include "config_schemas/keys.h"
#include "zero/base/error.h"

namespace zero::config_schemas {
namespace {

constexpr std::size_t most_kept = 100;

}  // namespace

void ProblemList::add(Position position, std::string text) {
  if (problems_.size() < most_kept)
    problems_.push_back({position, std::move(text)});
  else
    ++not_kept_;
}

void ProblemList::unknown_key(Position position, const std::string& path) {
  // The search for the nearest key costs time, which a hostile file must not multiply.
  const bool kept = problems_.size() < most_kept;
  add(position,
      kept ? printable(path) + ": unknown key; nearest known key: " + nearest_key(path) : "");
}

void ProblemList::throw_if_any() const {
  if (problems_.empty()) return;
  std::vector<Problem> sorted = problems_;
  std::ranges::stable_sort(sorted, {}, [](const Problem& problem) {
    const Position& at = problem.position;
    return std::tuple(at.line == 0, at.line, at.column);  // overrides last
  });
  std::string message;
  for (const Problem& problem : sorted) {
    const Position& at = problem.position;
    if (!message.empty()) message += '\n';
    message += at.line == 0
                   ? "override"
                   : file_ + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
    message += ": " + problem.text;
  }
  if (not_kept_ > 0)
    message += "\n" + file_ + ": and " + std::to_string(not_kept_) + " more problems";
  throw ConfigError(message);
}

}  // namespace zero::config_schemas
