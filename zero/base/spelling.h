// The known name nearest to a probably mistyped name, for error messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

// The number of insertions, deletions, replacements and swaps of neighbors between the two names.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Returns "; did you mean "x"?" with the nearest candidate, or one that contains the name, or "" if
// none is near.
std::string hint_for(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace zero
