#include "tools/zero/program.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/command_line.h"
#include "tools/options/help_formatter.h"
#include "tools/options/number_options.h"
#include "tools/options/result_file.h"
#include "tools/zero/commands.h"
#include "zero/base/error.h"
#include "zero/base/spelling.h"
#include "zero/base/text.h"

namespace zero::tool {

namespace {

// Names a command of that name below another one, or the nearest command.
std::string hint_of(const CLI::App& parent, const std::string& word,
                    const std::vector<std::string>& names) {
  for (const CLI::App* command : commands_of(parent))
    for (const CLI::App* inner : commands_of(*command))
      if (inner->check_name(word)) return "; did you mean \"" + full_name(*inner) + "\"?";
  if (parent.get_option_no_throw("--" + word) != nullptr)
    return "; did you mean \"" + full_name(parent) + " --" + word + "\"?";
  if (parent.check_name("config") && word.find('.') != std::string::npos)
    return "; did you mean \"zero config check " + printable(word) + "\"?";
  return hint_for(word, names);
}

// Names a word that is no command, because CLI11 only reports a missing command.
void check_command(CLI::App& app, int argc, char** argv) {
  CLI::App* parent = &app;
  std::string given;
  for (int at = 1; at < argc && parent->get_require_subcommand_min() > 0; ++at) {
    const std::string word = argv[at];
    if (word.starts_with('-')) return;
    const auto found =
        parent->get_subcommands([&](const CLI::App* command) { return command->check_name(word); });
    if (found.empty()) {
      const std::vector<std::string> names = command_names(*parent);
      throw ConfigError("unknown command " + given + printable(word) +
                        hint_of(*parent, word, names) + "; expected one of " +
                        list_of(names, names.size()) + "; see zero " + given + "--help");
    }
    parent = found.front();
    given += word + " ";
  }
}

// Returns the arguments in reverse, as CLI11 takes them. Before the program of `zero run`, and in
// commands with ranks, options of mpirun keep their names here, and "--" may stand.
std::vector<std::string> arguments_of(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto named = app.get_subcommands([&](const CLI::App* command) {
    return !words.empty() && command->check_name(words.front());
  });
  const CLI::App* command = named.empty() ? nullptr : named.front();
  const bool ranks = command != nullptr && command->get_option_no_throw("--ranks") != nullptr;
  for (std::size_t at = 1; ranks && at < words.size(); ++at) {
    std::string& word = words[at];
    if (word == "-np" || word == "--np") word = "-n";
    for (const char* name : {"-hostfile", "-machinefile", "--machinefile"})
      if (word == name) word = "--hostfile";
    if (word == "--") words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
    if (at == words.size() || !word.starts_with('-')) break;
    const CLI::Option* option = command->get_option_no_throw(word);
    if (option != nullptr && option->get_expected_max() > 0) ++at;
  }
  std::ranges::reverse(words);
  return words;
}

// The innermost parsed command.
const CLI::App& parsed_command(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : parsed_command(*parsed.front());
}

void add_commands(CLI::App& app) {
  app.set_version_flag("--version", "zero " ZERO_VERSION);
  app.require_subcommand(1);
  app.footer("zero COMMAND --help lists the options of a command.");
  const auto add = [&app](const char* group, auto... commands) {
    const std::size_t before = app.get_subcommands({}).size();
    (commands(app), ...);
    const std::vector<CLI::App*> all = app.get_subcommands({});
    for (std::size_t at = before; at < all.size(); ++at) all[at]->group(group);
  };
  add("Before a run", add_config, add_plan, add_calibrate, add_doctor);
  add("A run", add_run, add_tune);
  add("After a run", add_checkpoint, add_compare);
  add("To look up", add_names, add_completion);
  add("", add_host_agent, add_keeper);
  add_examples(app);
  refuse_missing_values(app);
}

// Parses and executes the command.
void execute(CLI::App& app, int argc, char** argv) {
  check_command(app, argc, argv);
  try {
    app.parse(arguments_of(app, argc, argv));
  } catch (const CLI::ExtrasError&) {
    const CLI::App& command = parsed_command(app);
    throw ConfigError(unexpected_text(command, app.remaining(true), {argv + 1, argv + argc}));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw ConfigError(wrong_use_text(parsed_command(app), error));
    app.exit(error);
  }
  std::cout.flush();
  flush_standard_output();
}

}  // namespace

int run_program(int argc, char** argv) {
  try {
    CLI::App app{"The command-line tool of ZeroCore (sharded data-parallel training).", "zero"};
    app.formatter(std::make_shared<HelpFormatter>());
    add_commands(app);
    if (argc == 1) {
      std::fputs(app.help().c_str(), stderr);
      return ConfigError::code;
    }
    std::vector<char*> words(argv, argv + argc);
    static char help[] = "--help";
    if (std::string_view(words[1]) == "help") {  // zero help plan
      words.erase(words.begin() + 1);
      words.push_back(help);
    }
    argc = static_cast<int>(words.size());
    argv = words.data();
    try {
      execute(app, argc, argv);
    } catch (const ConfigError& error) {
      throw ConfigError(as_typed(parsed_command(app), error.what(), {argv + 1, argv + argc}));
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "zero: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zero: %s\n", error.what());
    return Error::code;
  }
  return 0;
}

}  // namespace zero::tool
