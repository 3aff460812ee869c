#include "tools/options/command_line.h"

#include <algorithm>

#include "zero/base/error.h"
#include "zero/base/spelling.h"
#include "zero/base/text.h"

namespace zero {

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : full_name(*parent) + " ") + command.get_name();
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

std::string unexpected_text(const CLI::App& command, const std::vector<std::string>& words) {
  const auto option =
      std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  const std::string word =
      option != words.end() ? option->substr(0, option->find('=')) : words.front();
  const std::string help = "; " + full_name(command) + " --help lists the options";
  if (option == words.end()) {
    const bool config =
        word.ends_with(".json") && command.get_option_no_throw("--deepspeed-config");
    return "unexpected argument " + printable(word) +
           (config ? "; did you mean --deepspeed_config " + printable(word) + "?" : help);
  }
  const std::string hint = hint_for(word, option_names(command));
  return "unknown option " + printable(word) + (hint.empty() ? help : hint);
}

std::string wrong_use_text(const CLI::App& command, const CLI::ParseError& error) {
  std::string text = error.what();
  const std::vector<std::string> rest = command.remaining();
  const auto is_option = [](const std::string& word) { return word.starts_with('-'); };
  if (!command.get_prefix_command() && std::ranges::any_of(rest, is_option))
    return unexpected_text(command, rest);
  const std::vector<std::string> commands = command_names(command);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !commands.empty())
    text = "a command is missing: one of " + list_of(commands, commands.size());
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    text = text.substr(0, text.find(':')) + " needs a value";
  return text + "; see " + full_name(command) + " --help";
}

std::vector<std::string> program_words(const CLI::App& command) {
  std::vector<std::string> words = command.remaining();
  if (words.empty()) throw ConfigError("no program given; see " + full_name(command) + " --help");
  if (words.front().starts_with('-')) throw ConfigError(unexpected_text(command, words));
  return words;
}

}  // namespace zero
