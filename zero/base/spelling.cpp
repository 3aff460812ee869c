#include "zero/base/spelling.h"

#include <algorithm>

namespace zero {

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

std::string hint_for(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  const std::string_view stem = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  // A name with all its letters replaced is another name.
  std::size_t best_distance = std::min(std::max<std::size_t>(3, name.size() / 3 + 1), stem.size());
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  if (best.empty() && stem.size() >= 4)
    for (const std::string& candidate : candidates)
      if (best.empty() && candidate.find(stem) != std::string::npos) best = candidate;
  return best.empty() ? "" : "; did you mean \"" + best + "\"?";
}

}  // namespace zero
