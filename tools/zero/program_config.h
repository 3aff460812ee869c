// Reads from the config of the program that `zero run` starts which numbers of ranks it permits.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace zero::tool {

// Returns a function that returns why the program cannot run on a number of ranks, or "". The
// config is the file of --deepspeed_config or --deepspeed among the program's arguments, with the
// values of
// --set. If there is none, or it cannot be read here, every number is accepted: the program then
// reports its own errors.
std::function<std::string(int ranks)> refusal_of_ranks(const std::vector<std::string>& arguments);

}  // namespace zero::tool
