// zero completion: scripts with which a shell completes the commands and options of `zero`, from
// the same declarations as its help, and train_gpt's options, which its help lists.
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

// The options in the first column of the help.
constexpr const char* bash_train_gpt =
    R"sh(_train_gpt_options() {
  "$1" --help 2>/dev/null | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr , ' '
}
_train_gpt() {
  COMPREPLY=($(compgen -W "$(_train_gpt_options "${COMP_WORDS[0]}")" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _train_gpt train_gpt
)sh";

constexpr const char* fish_train_gpt =
    R"sh(function __train_gpt_options; command -q train_gpt; and train_gpt --help | string replace -rf '^  (-\S+).*' '$1' | string split ,; end
complete -c train_gpt -a '(__train_gpt_options)'
complete -c zero -n '__fish_seen_subcommand_from run tune; and __fish_seen_subcommand_from train_gpt' -a '(__train_gpt_options)'
)sh";

// Options with a value, and words after the command's own, are completed as file names.
std::string bash_script(const CLI::App& app) {
  std::string paths, cases;
  add_bash(app, "", paths, cases);
  return std::string(bash_train_gpt) +
         "_zero() {\n"
         "  local word place='' known='' program=''\n"  // `path` is PATH in zsh
         "  for word in \"${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}\"; do\n"
         "    case \"$place/$word\" in\n"
         "    " +
         paths +
         ") place=\"$place/$word\" ;;\n"
         "    /run/train_gpt | /run/*/train_gpt | /tune/train_gpt | /tune/*/train_gpt) "
         "program=$word ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$place\" in\n" +
         cases +
         "  esac\n"
         "  [ -z \"$program\" ] || known=$(_train_gpt_options \"$program\")\n"
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
  for (const CLI::App* next : commands_of(command)) inner += " " + next->get_name();
  if (seen.empty())
    script += "complete -c zero -f -n 'not __fish_seen_subcommand_from help" + inner +
              "' -a help -d 'Print the help of a command'\n";
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
  std::string script = fish_train_gpt;
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
