// Small helpers for readable text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

// The words between blanks and ends of lines.
std::vector<std::string> words_of(const std::string& text);

// ASCII letters only, independent of the locale.
std::string lower_case(std::string_view text);

std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

// Returns "; raise ..." for EFBIG, to append to the error's text, otherwise "". The limit on file
// sizes also applies to shared memory and offload files.
std::string file_size_advice(int error);

// For messages: control and non-ASCII characters are escaped, and long text is cut.
std::string printable(std::string_view text, std::size_t limit = 80);

// Lower-case hexadecimal digits, two per byte.
std::string to_hex(std::string_view bytes);

// "a, b and 3 more"
std::string list_of(const std::vector<std::string>& items, std::size_t most,
                    std::string_view separator = ", ");

// "1 rank", "3 ranks"
std::string count_of(std::int64_t count, std::string_view noun);

// The system's name of this host.
std::string host_name();

// A JSON string, with quotes. Non-ASCII bytes, which need not be UTF-8, appear as \xNN.
std::string json_text(std::string_view text);

}  // namespace zero
