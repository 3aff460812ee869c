// Words of a command line that no option and no command has.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace zero {

// Returns the error about words that are left after the command has been parsed, with the nearest
// option's name: "unknown option --modell; did you mean "--model"?". With the whole command line
// as typed, it also says which option's value a word follows.
std::string unexpected_text(const CLI::App& command, const std::vector<std::string>& words,
                            const std::vector<std::string>& typed = {});

// Returns the error about a missing value or argument, with the command for help.
std::string wrong_use_text(const CLI::App& command, const CLI::ParseError& error);

// Returns an error's text that begins with the name of an option, such as --ranks, with the name
// that was typed: -n.
std::string as_typed(const CLI::App& command, const std::string& text,
                     const std::vector<std::string>& typed);

// Returns the words from the program on, for a command with prefix_command(). Throws ConfigError if
// an option comes first, nothing, or an item of a list that lacks commas.
std::vector<std::string> program_words(const CLI::App& command);

// The names of a command's options, such as "--model".
std::vector<std::string> option_names(const CLI::App& command);

// The commands that an App's help lists, and their names; among those of a program is `help`.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<std::string> command_names(const CLI::App& app);

// "zero plan", of the command `plan`.
std::string full_name(const CLI::App& command);

}  // namespace zero
