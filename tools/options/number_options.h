// Numbers on the command lines of `zero` and train_gpt. Each such option has a row in the table of
// number_options.cpp: kind and range. If the text is no such number, or is out of range, a
// ConfigError names the option, the text and the range.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace zero {

// Throws std::logic_error if the table has no row of this name ("-n,--ranks" is "--ranks").
void check_number(CLI::Option& option, const std::string& names);

template <class Number>
CLI::Option* add_number(CLI::App& app, const std::string& names, Number& value,
                        const std::string& help) {
  CLI::Option* option = app.add_option(names, value, help);
  check_number(*option, names);
  return option;
}

// For all options of the command and of its subcommands: refuses empty values, and for those that
// take one value the name of another option, since the value has been forgotten then.
void refuse_missing_values(CLI::App& app);

}  // namespace zero
