// Prints a rank's message when the job fails.
#pragma once

#include <string>

namespace zero {

// "zero: rank SEEN_BY: TEXT" on stderr. With ZERO_ERROR_JSON=1 a line of JSON for programs follows
// (docs/exit-codes.md). `failed_rank` is the rank whose failure the text describes.
void print_last_words(int seen_by, int failed_rank, int exit_code,
                      const std::string& text) noexcept;

}  // namespace zero
