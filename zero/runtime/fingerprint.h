// Named values that must be equal on all ranks, such as the options and the inputs of a program:
// compared in one exchange, and each that differs is named in the error.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "zero/config.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

// Collective. Throws DisagreementError on every rank where values differ, or where a rank has a
// name that another lacks.
void agree_on_values(Ranks& ranks, const Text& values);

// 16 hexadecimal digits, for messages.
std::string text_of_hash(std::uint64_t hash);
// "rank 2", "ranks 0, 1".
std::string list_of_ranks(const char* noun, const std::vector<std::size_t>& ranks);
// "rank 0 has 3, ranks 1, 2 have 5": which ranks have which value, in the order of the ranks.
std::string who_has_what(const char* noun, const std::vector<std::string>& value_of_rank);

}  // namespace zero::detail
