// Strict mode, for programs under test: stage 3's rules at every stage and on one rank, so that a
// program that breaks a rule fails in the first tests, not in a run on more GPUs. Results stay
// bitwise identical to those of the stage.
//
// - Parameters are gathered for scopes, and open scopes share stage 3's slots (EnginePlan).
// - Every collective call is compared over the ranks before execution (CallGuard).
// - On CPU ranks every flat unit has separate memory instead of a shared slot, and memory that
//   the program may not use is hidden there (HiddenMemory).
#pragma once

namespace zero::detail {

// Reads the environment variable ZERO_STRICT, 1 or 0; without it the default is the CMake option of
// that name. Throws ConfigError.
bool strict_mode();

}  // namespace zero::detail
