// The config of the program that `zero run` starts, as far as it limits the number of ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace zero::tool {

// Returns why the program cannot run on a number of ranks, or "". The config is the file of
// --deepspeed_config or --deepspeed among the program's arguments, with the values of --set.
// Without one, and with one that cannot be read here, every number is accepted: the program has the
// last word.
std::function<std::string(int ranks)> refusal_of_ranks(const std::vector<std::string>& arguments);

}  // namespace zero::tool
