// The `zero` command-line tool: parses, calls a subcommand, turns errors into exit codes.
#include <cstdio>
#include <exception>
#include <string>

#include "tools/options/number_options.h"
#include "tools/zero/commands.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

// Names a word that is no command, because CLI11 only reports a missing one.
void check_command(CLI::App& app, int argc, char** argv) {
  CLI::App* parent = &app;
  std::string given;
  for (int at = 1; at < argc && parent->get_require_subcommand_min() > 0; ++at) {
    const std::string word = argv[at];
    if (word.starts_with('-')) return;
    const auto found =
        parent->get_subcommands([&](const CLI::App* command) { return command->check_name(word); });
    if (found.empty()) {
      std::string names;
      for (const CLI::App* command : parent->get_subcommands({}))
        if (!command->get_group().empty())  // not hidden
          names += (names.empty() ? "" : ", ") + command->get_name();
      throw zero::ConfigError("unknown command " + given + zero::printable(word) +
                              "; expected one of " + names + "; see zero " + given + "--help");
    }
    parent = found.front();
    given += word + " ";
  }
}

int main(int argc, char** argv) {
  try {
    CLI::App app{"The command-line tool of ZeroCore (sharded data-parallel training).", "zero"};
    app.set_version_flag("--version", "zero " ZERO_VERSION);
    app.require_subcommand(1);
    zero::tool::add_config(app);
    zero::tool::add_checkpoint(app);
    zero::tool::add_compare(app);
    zero::tool::add_doctor(app);
    zero::tool::add_plan(app);
    zero::tool::add_calibrate(app);
    zero::tool::add_tune(app);
    zero::tool::add_run(app);
    zero::tool::add_host_agent(app);
    zero::tool::add_keeper(app);
    zero::refuse_empty_values(app);
    check_command(app, argc, argv);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      // CLI11 numbers its errors from 100; here a wrong command line is one kind of error.
      return app.exit(error) == 0 ? 0 : zero::ConfigError::code;
    }
  } catch (const zero::Error& error) {
    std::fprintf(stderr, "zero: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zero: %s\n", error.what());
    return zero::Error::code;
  }
  return 0;
}
