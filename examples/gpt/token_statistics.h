// Whether the bytes of a file can be tokens of the type that its name says.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace gpt {

// Neighboring tokens of a file, read as uint16: the first of a block has an even place. Returns
// what speaks against the type, and what to do; empty if nothing does. Never against few tokens.
std::string doubt_of_uint16(std::span<const std::uint16_t> tokens);

}  // namespace gpt
