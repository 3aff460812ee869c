#include "zero/checkpoint/element_match.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace zero::checkpoint {

ElementMatch::ElementMatch(const Manifest& saved, const Manifest& own) : kind_of{0} {
  std::map<std::pair<std::string, bool>, int> numbers;  // by name, and whether this is a buffer
  for (const ManifestParameter& parameter : own.parameters)
    numbers.emplace(std::pair(parameter.name, parameter.buffer), static_cast<int>(numbers.size()));
  for (const ManifestParameter& parameter : saved.parameters) {
    const auto found = numbers.find({parameter.name, parameter.buffer});
    number_of.push_back(found == numbers.end() ? -1 : found->second);
  }
  for (const std::string& state : saved.states) {
    const auto found = std::ranges::find(own.states, state);
    kind_of.push_back(found == own.states.end() ? -1
                                                : static_cast<int>(found - own.states.begin()) + 1);
  }
}

void ElementMatch::want(const std::vector<ElementRange>& needed, const Manifest& saved,
                        const Manifest& own) {
  std::vector<int> saved_number(own.parameters.size(), -1), saved_kind(kind_of.size());
  for (int i = 0; i < std::ssize(number_of); ++i)
    if (number_of[i] >= 0) saved_number[number_of[i]] = i;
  for (int k = 0; k < std::ssize(kind_of); ++k) saved_kind[kind_of[k]] = k;
  wants_.clear();
  for (const ElementRange& range : needed) {
    const ElementRange found{saved_number[range.parameter], saved_kind[range.kind]};
    if (found.parameter < 0) continue;
    const ManifestParameter& parameter = saved.parameters[found.parameter];
    if (saved.has(parameter, found.kind))
      add(found, range, parameter.split(), own.parameters[range.parameter].split());
  }
  for (int i = 0; i < std::ssize(saved.parameters); ++i)
    if (saved.parameters[i].buffer && number_of[i] >= 0)
      wants_.push_back({{i, 0, 0, saved.parameters[i].elements()}, {number_of[i], 0}});
  std::ranges::sort(wants_, {}, &Want::saved);
}

// The checkpoint may have been saved by another number of tensor ranks.
void ElementMatch::add(const ElementRange& saved, const ElementRange& own, const TensorSplit& was,
                       const TensorSplit& now) {
  const auto run = [&](std::int64_t in_own, std::int64_t in_saved, std::int64_t count) {
    wants_.push_back(
        {{saved.parameter, saved.kind, in_saved, count}, {own.parameter, own.kind, in_own, count}});
  };
  if (now == was) return run(own.begin, own.begin, own.count);
  now.for_parts(own.begin, own.count,
                [&](std::int64_t in_own, std::int64_t whole, std::int64_t count) {
                  was.for_whole(whole, count,
                                [&](std::int64_t at, std::int64_t in_saved, std::int64_t length) {
                                  run(in_own + at - whole, in_saved, length);
                                });
                });
}

ElementRange ElementMatch::own_of(const ElementRange& piece) const {
  const auto key = [](const ElementRange& range) {
    return std::tuple(range.parameter, range.kind, range.begin);
  };
  const auto next = std::ranges::upper_bound(wants_, key(piece), {},
                                             [&](const Want& want) { return key(want.saved); });
  const auto& [saved, own] = *std::prev(next);
  return {own.parameter, own.kind, own.begin + piece.begin - saved.begin, piece.count};
}

}  // namespace zero::checkpoint
