// The subcommands of `zero`, one file each. Each adds itself to the program's command line and
// throws zero::Error for errors that the user can correct; the process ends with the error's exit
// code.
#pragma once

#include <CLI/CLI.hpp>

#include "zero/base/error.h"

namespace zero::tool {

// The compared objects differ; the exit code is that of diff(1).
class Differ : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 1; }
};

void add_config(CLI::App& app);
void add_checkpoint(CLI::App& app);
void add_compare(CLI::App& app);
void add_completion(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_doctor(CLI::App& app);
void add_names(CLI::App& app);
void add_plan(CLI::App& app);
void add_tune(CLI::App& app);
void add_run(CLI::App& app);
void add_host_agent(CLI::App& app);
void add_keeper(CLI::App& app);
// Call after all of these.
void add_examples(CLI::App& app);

}  // namespace zero::tool
