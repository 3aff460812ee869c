// Writes the help of a command in the width of the terminal: an option with a name for the value,
// and a description with the range and the default. Options are in groups, in the order of
// declaration (CLI::App::option_defaults()->group()).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace zero {

// The name of an option's value in the help, such as N, FILE or LIST.
std::string value_name(const CLI::Option& option);

// The width is COLUMNS or the terminal's, from 60 to 120, or 100 if standard output is no terminal.
// Indented lines of a description or a footer are commands, and stay as they are.
class HelpFormatter : public CLI::Formatter {
 public:
  // `usage`: instead of the line that CLI11 makes, "zero run -n N [OPTIONS] PROGRAM [ARGS...]".
  explicit HelpFormatter(std::string usage = "") : usage_(std::move(usage)) {}

  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::string usage_;
};

}  // namespace zero
