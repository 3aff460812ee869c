// Small helpers for texts that people read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

// ASCII letters alone, independent of the locale.
std::string lower_case(std::string_view text);

std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

// "; raise ...", to go behind the text of an errno: for EFBIG, else empty. The limit of file sizes
// holds for shared memory and offload files too.
std::string file_size_advice(int error);

// For messages: control and non-ASCII characters escaped, cut when long.
std::string printable(std::string_view text, std::size_t limit = 80);

// "a, b and 3 more"
std::string list_of(const std::vector<std::string>& items, std::size_t most,
                    std::string_view separator = ", ");

// A string of JSON, in its quotes. Bytes outside of ASCII, which need not be UTF-8, appear as \xNN.
std::string json_text(std::string_view text);

}  // namespace zero
