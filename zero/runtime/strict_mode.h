// Strict mode, for programs under test: stage 3's rules at every stage and on one rank, so that a
// program that breaks one of them fails where it is written, not when it is given more GPUs. Bits
// stay those of the stage.
//
// - Parameters are gathered for scopes, and open scopes share stage 3's slots (EnginePlan).
// - Every collective call is compared over the ranks before it begins (CallGuard).
// - On CPU ranks every flat unit has memory of its own in place of a slot that others use, and what
//   the program may not use is hidden there (HiddenMemory).
#pragma once

namespace zero::detail {

// As ZERO_STRICT in the environment says, 1 or 0; without it as the build was configured, by
// CMake's option of that name. Throws ConfigError.
bool strict_mode();

}  // namespace zero::detail
