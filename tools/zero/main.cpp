// The `zero` command-line tool: parses, hands over to a subcommand, turns errors into exit codes.
#include <cstdio>
#include <exception>
#include <string>

#include "tools/zero/commands.h"
#include "zero/base/error.h"

int main(int argc, char** argv) {
  try {
    CLI::App app{"The command-line tool of ZeroCore (sharded data-parallel training).", "zero"};
    app.set_version_flag("--version", "zero " ZERO_VERSION);
    app.require_subcommand(1);
    zero::tool::add_config(app);
    zero::tool::add_checkpoint(app);
    zero::tool::add_compare(app);
    zero::tool::add_run(app);
    const std::string word = argc > 1 ? argv[1] : "-";
    const auto named = [&](const CLI::App* command) { return command->check_name(word); };
    if (word[0] != '-' && app.get_subcommands(named).empty())
      throw zero::ConfigError("unknown command " + word + "; see zero --help");
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      // CLI11 numbers its errors from 100; a wrong command line is one kind of ours.
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
