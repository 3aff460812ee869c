// Named values that must be equal on all ranks, such as a program's options and inputs: compared in
// one exchange, and the error names each value that differs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "zero/config.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

// Collective. Throws DisagreementError on every rank if values differ, or if a rank has a name that
// another lacks.
void agree_on_values(Ranks& ranks, const Text& values);

// 16 hexadecimal digits, for messages.
std::string text_of_hash(std::uint64_t hash);
// "rank 2", "ranks 0, 1".
std::string list_of_ranks(const char* noun, const std::vector<std::size_t>& ranks);
// "rank 0 has 3, ranks 1, 2 have 5": each value with the ranks that have it, in rank order.
std::string who_has_what(const char* noun, const std::vector<std::string>& value_of_rank);

}  // namespace zero::detail
