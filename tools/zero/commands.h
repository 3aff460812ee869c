// The subcommands of `zero`, one file each. Each adds itself to the program's command line and
// leaves in exit_code what the process should return; it throws zero::Error for what the user can
// mend.
#pragma once

#include <CLI/CLI.hpp>

namespace zero::tool {

void add_config(CLI::App& app);
void add_checkpoint(CLI::App& app);
void add_compare(CLI::App& app);
void add_run(CLI::App& app);

}  // namespace zero::tool
