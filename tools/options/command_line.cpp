#include "tools/options/command_line.h"

#include <algorithm>
#include <array>

#include "tools/options/help_formatter.h"
#include "tools/options/settings.h"
#include "zero/base/error.h"
#include "zero/base/spelling.h"
#include "zero/base/text.h"

namespace zero {
namespace {

// An option that takes one value, with this value.
struct Given {
  const CLI::Option* option = nullptr;
  std::string name, value;
};

// Returns the option whose value comes before the word; without an option, if there is none.
Given given_before(const CLI::App& command, const std::string& word,
                   const std::vector<std::string>& typed) {
  for (std::size_t at = 1; at < typed.size(); ++at) {
    if (typed[at] != word) continue;
    const std::string& last = typed[at - 1];
    const std::size_t equals = last.find('=');
    Given given;
    if (last.starts_with("--") && equals != std::string::npos)
      given = {nullptr, last.substr(0, equals), last.substr(equals + 1)};
    else if (at >= 2 && typed[at - 2].starts_with('-'))
      given = {nullptr, typed[at - 2], last};
    if (given.name.empty()) continue;
    given.option = command.get_option_no_throw(given.name);
    if (given.option != nullptr && given.option->get_expected_max() > 0) return given;
  }
  return {};
}

// Returns the error about a list whose items are words of their own, in the right form.
std::string commas_text(const Given& given, const std::vector<std::string>& words) {
  std::string typed = given.value, list = given.value;
  for (const std::string& word : words) {
    if (word.find('.') != std::string::npos || word.starts_with('-')) break;  // a file, an option
    typed += " " + word;
    list.erase(list.find_last_not_of(',') + 1);
    list += "," + word.substr(std::min(word.find_first_not_of(','), word.size()));
  }
  list.erase(list.find_last_not_of(',') + 1);
  return given.name + " " + printable(typed) +
         ": commas separate the items of a list: " + given.name + " " + printable(list);
}

std::string behind_value_text(const Given& given, const std::vector<std::string>& words,
                              const std::string& hint) {
  if (value_name(*given.option) == "LIST") return commas_text(given, words);
  const bool repeats = given.option->get_expected_max() > 1;
  return "unexpected argument " + printable(words.front()) + " behind " + given.name + " " +
         printable(given.value) + ", which is one value" +
         (repeats ? ": write " + given.name + " " + printable(words.front()) : hint);
}

// Returns whether a launcher has this option for the number of ranks, of a host or of all.
bool is_number_of_ranks(const std::string& option) {
  constexpr std::array names = {"-n",
                                "--n",
                                "-np",
                                "--np",
                                "--ranks",
                                "--num-gpus",
                                "--num_gpus",
                                "--nproc-per-node",
                                "--nproc_per_node"};
  return std::ranges::find(names, option) != names.end();
}

// Returns what was probably meant by an option that this command does not have, or "".
std::string option_hint(const CLI::App& command, const std::string& word) {
  const std::vector<std::string> names = option_names(command);
  if (std::ranges::find(names, word) != names.end())
    return ": it comes after the command: " + full_name(command) + " " + word;
  const std::string first = word.substr(0, word.find(' '));
  if (first != word && std::ranges::find(names, first) != names.end())
    return "; option and value are two words: " + word;
  for (const CLI::App* inner : commands_of(command))
    if (inner->get_option_no_throw(word) != nullptr)
      return "; did you mean \"" + full_name(*inner) + " " + word + "\"?";
  if (is_number_of_ranks(word) && command.get_option_no_throw("--ranks") != nullptr)
    return "; did you mean --ranks, of all hosts?";
  if (is_number_of_ranks(word) && command.get_parent() == nullptr)
    return "; ranks are started by zero run -n N " + full_name(command);
  std::string hint = hint_for(word, names);
  if (hint.empty() && command.get_option_no_throw("--set") != nullptr) hint = settings_hint(word);
  if (hint.empty() && command.get_prefix_command())
    hint = "; options of the program come after the program, and " + full_name(command) +
           " --help lists those before it";
  return hint;
}

// Returns the option that a word was probably meant for, and a space, or "": a config, the size of
// a model such as 7Bx32, or its name.
std::string missing_option(const CLI::App& command, const std::string& word) {
  const auto has = [&](const std::string& name) { return command.get_option_no_throw(name); };
  if (word.ends_with(".json") && has("--deepspeed-config")) return "--deepspeed_config ";
  const std::size_t number = word.find_first_not_of("0123456789.");
  if (number != 0) return has("--params") && number != std::string::npos ? "--params " : "";
  const CLI::Option* model = has("--model");
  const bool is_open = model && model->count() == 0 && value_name(*model).starts_with("NAME|");
  return is_open && !has("--" + word) ? "--model " : "";
}

}  // namespace

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
  if (app.get_parent() == nullptr && !names.empty()) names.push_back("help");
  return names;
}

std::string unexpected_text(const CLI::App& command, const std::vector<std::string>& words,
                            const std::vector<std::string>& typed) {
  const auto option =
      std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  const std::string word =
      option != words.end() ? option->substr(0, option->find('=')) : words.front();
  const std::string help = "; " + full_name(command) + " --help lists the options";
  if (option == words.end()) {
    if (word.starts_with("\xe2\x80") || word.starts_with("\xe2\x88\x92"))  // copied from a text
      return "unexpected argument " + printable(word) +
             ", which begins with a typographic dash: " + "type --" +
             printable(word.substr(std::min(word.find_first_not_of('-', 3), word.size())));
    const std::string meant = missing_option(command, word);
    const std::string hint =
        meant.empty() ? help : "; did you mean " + meant + printable(word) + "?";
    const Given given = given_before(command, word, typed);
    if (meant != "--deepspeed_config " && given.option != nullptr)
      return behind_value_text(given, words, hint);
    return "unexpected argument " + printable(word) + hint;
  }
  const std::string hint = option_hint(command, word);
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
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string name = text.substr(0, text.find(':'));
    const CLI::Option* option = command.get_option_no_throw(name);
    const bool twice = option != nullptr && option->get_expected_max() < int(option->count());
    text = name + (twice ? " is given more than once, and takes one value" : " needs a value");
  }
  return text + "; see " + full_name(command) + " --help";
}

std::string as_typed(const CLI::App& command, const std::string& text,
                     const std::vector<std::string>& typed) {
  const std::string name = text.substr(0, text.find_first_of(" :"));
  const CLI::Option* option = command.get_option_no_throw(name);
  for (const std::string& word : typed) {
    if (option == nullptr || word.substr(0, word.find('=')) == name) return text;
    const bool ranks = name == "--ranks" && is_number_of_ranks(word);  // -np, as mpirun has it
    if (ranks || (word.starts_with('-') && command.get_option_no_throw(word) == option))
      return word + text.substr(name.size());
  }
  return text;
}

std::vector<std::string> program_words(const CLI::App& command) {
  std::vector<std::string> words = command.remaining();
  if (words.empty()) throw ConfigError("no program given; see " + full_name(command) + " --help");
  if (words.front().starts_with('-')) throw ConfigError(unexpected_text(command, words));
  // A program's name hardly begins with a digit.
  const auto is_item = [](const std::string& word) {
    return word.find_first_of(",0123456789") == 0;
  };
  const std::vector<std::string> items(words.begin(), std::ranges::find_if_not(words, is_item));
  for (const CLI::Option* option : command.get_options())
    if (!items.empty() && value_name(*option) == "LIST" && option->count() > 0)
      throw ConfigError(
          commas_text({option, option->get_name(), option->results().front()}, items));
  if (words.front().find_first_not_of("0123456789") == std::string::npos)
    throw ConfigError(words.front() + " is no program; the number of ranks is -n " + words.front());
  return words;
}

}  // namespace zero
