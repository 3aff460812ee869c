// Strict mode, for programs under test: stage 3's rules at every stage and on one rank, so that a
// program that breaks one of them fails where it is written, not when it is given more GPUs. Bits
// stay those of the stage.
//
// - Parameters are gathered for scopes, and open scopes share stage 3's slots (EnginePlan).
// - Every collective call is compared over the ranks before it begins (EngineCore::meet).
// - On CPU ranks every flat unit has memory of its own in place of a slot that others use, and what
//   the program may not use is hidden there.
//
// Hidden memory: with AddressSanitizer in the process, any use of it ends the program at that line,
// and contents stay. Without it, parameters that the plan has done with read as NaN in every dtype,
// and gradients are zeros, so that it is seen when something was added to them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zero::detail {

// As ZERO_STRICT in the environment says, 1 or 0; without it as the build was configured, by
// CMake's option of that name. Throws ConfigError.
bool strict_mode();

bool sanitizer_watches() noexcept;
void hide_values(std::byte* data, std::int64_t bytes, bool done_with) noexcept;
void hide_gradient(std::byte* data, std::int64_t bytes) noexcept;
void show(std::byte* data, std::int64_t bytes) noexcept;
// A gradient, before it is shown; the sanitizer would not have let it.
bool written_while_hidden(const std::byte* data, std::int64_t bytes) noexcept;

}  // namespace zero::detail
