// The config of a program that the tool starts, found among the program's arguments.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zero/config.h"

namespace zero::tool {

// The file of --deepspeed_config or --deepspeed, "" if there is none, and the values of --set.
struct ProgramConfig {
  std::string file;
  Text overrides;
};
ProgramConfig read_program_config(const std::vector<std::string>& arguments);

// Returns the arguments with another config file, and without --set.
std::vector<std::string> with_config_file(const std::vector<std::string>& arguments,
                                          const std::string& file);

// Returns the arguments with another value of an option, which is appended if absent.
std::vector<std::string> with_argument(std::vector<std::string> arguments,
                                       const std::string& option, const std::string& value);

// Returns the value of an option ("--model"), or "" if the option has none.
std::optional<std::string> argument_of(const std::vector<std::string>& arguments,
                                       const std::string& option);

// Returns a function that returns why the program cannot run on a number of ranks, or "". Without a
// config that can be read here, every number is accepted: the program then reports errors.
std::function<std::string(int ranks)> refusal_of_ranks(const std::vector<std::string>& arguments);

// Returns zero_core.preempt_grace_s of the program's config, in seconds; 0 without a config that
// can be read here.
double grace_of(const std::vector<std::string>& arguments);

// Returns whether the program may make copies in memory (zero_core.peer_copies): also if the config
// is not among the arguments, or cannot be read here.
bool may_copy_to_peers(const std::vector<std::string>& arguments);

}  // namespace zero::tool
