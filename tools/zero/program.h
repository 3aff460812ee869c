// The `zero` command-line tool, apart from main().
#pragma once

namespace zero::tool {

// Parses a command line, calls a subcommand and turns errors into messages on standard error.
// Returns the exit code.
int run_program(int argc, char** argv);

}  // namespace zero::tool
