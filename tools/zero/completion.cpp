// zero completion: scripts with which a shell completes the commands and options of `zero`, from
// the same declarations as its help.
#include <cstdio>
#include <string>
#include <vector>

#include "tools/options/command_line.h"
#include "tools/zero/commands.h"

namespace zero::tool {
namespace {

// The help of an option or command, as one line without quotes.
std::string line_of(const std::string& help) {
  std::string line;
  for (const char c : help)
    if (c != '\'' && c != '"' && c != '\\') line += c == '\n' ? ' ' : c;
  return line;
}

// The words that may follow a command: subcommands and options.
std::string names_after(const CLI::App& command) {
  std::vector<std::string> words = command_names(command);
  for (const std::string& option : option_names(command)) words.push_back(option);
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
  return all;
}

void add_bash(const CLI::App& command, const std::string& path, std::string& paths,
              std::string& cases) {
  cases += "    \"" + path + "\") known='" + names_after(command) + "' ;;\n";
  for (const CLI::App* inner : commands_of(command)) {
    const std::string own = path + "/" + inner->get_name();
    paths += (paths.empty() ? "" : " | ") + own;
    add_bash(*inner, own, paths, cases);
  }
}

// Options with a value, and words after the command's own, are completed as file names.
std::string bash_script(const CLI::App& app) {
  std::string paths, cases;
  add_bash(app, "", paths, cases);
  return "_zero() {\n"
         "  local word path='' known=''\n"
         "  for word in \"${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}\"; do\n"
         "    case \"$path/$word\" in\n"
         "    " +
         paths +
         ") path=\"$path/$word\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$path\" in\n" +
         cases +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$known\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
         "}\n"
         "complete -o default -F _zero zero\n";
}

std::string zsh_script(const CLI::App& app) {
  return "(( ${+functions[compdef]} )) || { autoload -U +X compinit && compinit; }\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_script(app);
}

// `seen`: fish's condition that this command has been typed.
void add_fish(const CLI::App& command, const std::string& seen, std::string& script) {
  std::string inner;
  for (const std::string& name : command_names(command)) inner += " " + name;
  for (const CLI::App* next : commands_of(command)) {
    const std::string none = "not __fish_seen_subcommand_from" + inner;
    script += "complete -c zero -f -n '" + (seen.empty() ? none : seen + "; and " + none) +
              "' -a " + next->get_name() + " -d '" + line_of(next->get_description()) + "'\n";
    const std::string here = "__fish_seen_subcommand_from " + next->get_name();
    add_fish(*next, seen.empty() ? here : seen + "; and " + here, script);
  }
  for (const CLI::Option* option : command.get_options()) {
    script += "complete -c zero" + (seen.empty() ? "" : " -n '" + seen + "'");
    for (const std::string& name : option->get_lnames()) script += " -l " + name;
    for (const std::string& name : option->get_snames()) script += " -s " + name;
    if (option->get_lnames().empty() && option->get_snames().empty()) script += " -F";
    if (option->get_expected_max() > 0) script += " -r";
    script += " -d '" + line_of(option->get_description()) + "'\n";
  }
}

std::string fish_script(const CLI::App& app) {
  std::string script;
  add_fish(app, "", script);
  return script;
}

using Script = std::string (*)(const CLI::App&);

}  // namespace

void add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Complete commands and options in a shell");
  command->require_subcommand(1);
  const auto add = [&](const char* shell, Script script) {
    CLI::App* one = command->add_subcommand(shell, "Print the script for " + std::string(shell));
    one->callback([&app, script] { std::fputs(script(app).c_str(), stdout); });
  };
  add("bash", bash_script);
  add("zsh", zsh_script);
  add("fish", fish_script);
}

}  // namespace zero::tool
