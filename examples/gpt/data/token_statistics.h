// Checks whether the bytes of a file can be tokens of the type that its name implies.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace gpt {

// Takes neighboring tokens of a file, read as uint16; the first of a block has an even index.
// Returns the evidence against the type and a remedy, or an empty string. Never doubts few tokens.
std::string doubt_of_uint16(std::span<const std::uint16_t> tokens);

}  // namespace gpt
