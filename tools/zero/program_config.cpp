#include "tools/zero/program_config.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "config_schemas/load.h"
#include "tools/zero/config_plan.h"
#include "zero/base/error.h"
#include "zero/checkpoint/kept_batch.h"

namespace zero::tool {
namespace {

constexpr std::array<std::string_view, 3> files = {"--deepspeed_config", "--deepspeed-config",
                                                   "--deepspeed"};

// Returns the value of an option, given as "--name=value" or as the next argument.
const char* value_of(const std::vector<std::string>& arguments, std::size_t at,
                     std::string_view name) {
  const std::string& word = arguments[at];
  if (!word.starts_with(name)) return nullptr;
  if (word.size() > name.size()) return word[name.size()] == '=' ? &word[name.size() + 1] : nullptr;
  return at + 1 < arguments.size() ? arguments[at + 1].c_str() : nullptr;
}

// Returns true if the argument names a config file, here or in the next argument.
bool names_file(const std::vector<std::string>& arguments, std::size_t at) {
  return std::ranges::any_of(files, [&](std::string_view name) {
    const char* file = value_of(arguments, at, name);
    return file != nullptr && *file != '-';
  });
}

// Returns the config of a start that may resume, see zero::keep_batch().
config_schemas::Loaded after_first_start(config_schemas::Loaded loaded,
                                         const std::string& directory) {
  Config& config = loaded.config;
  if (!config.zero_core.rank_independent || !config.batch.elasticity.enabled || directory.empty())
    return loaded;
  if (const auto kept = checkpoint::kept_batch(directory, ""))
    config.batch = {kept->samples(), kept->micro, 0, config.batch.place};
  return loaded;
}

std::string name_of(const ProgramConfig& given) {
  return given.file.empty() ? "the config" : given.file;
}

// Returns null if the config cannot be read here.
std::shared_ptr<const config_schemas::Loaded> load_config_of(
    const std::vector<std::string>& arguments) {
  using namespace config_schemas;
  const ProgramConfig given = read_program_config(arguments);
  const std::string name = name_of(given);
  try {
    return std::make_shared<Loaded>(
        given.file.empty() ? load_text("{}", name, given.overrides, {}, Purpose::check)
                           : load_file(given.file, given.overrides, {}, Purpose::check));
  } catch (const ConfigError&) {
    return nullptr;
  }
}

}  // namespace

ProgramConfig read_program_config(const std::vector<std::string>& arguments) {
  ProgramConfig config;
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    for (const std::string_view name : files)
      if (const char* file = value_of(arguments, at, name); file != nullptr && *file != '-')
        config.file = file;
    const char* set = value_of(arguments, at, "--set");
    const std::string setting = set != nullptr ? set : "";
    if (const std::size_t equals = setting.find('='); equals != std::string::npos)
      config.overrides[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return config;
}

std::vector<std::string> with_config_file(const std::vector<std::string>& arguments,
                                          const std::string& file) {
  std::vector<std::string> changed;
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    const std::size_t equals = word.find('=');
    const bool sets = value_of(arguments, at, "--set") != nullptr;
    if (names_file(arguments, at)) {
      changed.push_back(equals == std::string::npos ? word : word.substr(0, equals + 1) + file);
      if (equals == std::string::npos) changed.push_back(file);
    } else if (!sets) {
      changed.push_back(word);
      continue;
    }
    if (equals == std::string::npos) ++at;  // the option's value
  }
  return changed;
}

std::vector<std::string> with_argument(std::vector<std::string> arguments,
                                       const std::string& option, const std::string& value) {
  bool found = false;
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    if (value_of(arguments, at, option) == nullptr) continue;
    found = true;
    if (arguments[at] == option)
      arguments[at + 1] = value;
    else
      arguments[at] = option + "=" + value;
  }
  if (!found) arguments.insert(arguments.end(), {option, value});
  return arguments;
}

std::optional<std::string> argument_of(const std::vector<std::string>& arguments,
                                       const std::string& option) {
  std::optional<std::string> found;
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    if (const char* value = value_of(arguments, at, option); value != nullptr)
      found = value;
    else if (arguments[at] == option)
      found = "";
  }
  return found;
}

std::function<std::string(int)> refusal_of_ranks(const std::vector<std::string>& arguments) {
  using namespace config_schemas;
  const std::string name = name_of(read_program_config(arguments));
  const std::string directory = argument_of(arguments, "--checkpoint").value_or("");
  const std::shared_ptr<const Loaded> loaded = load_config_of(arguments);
  if (!loaded) return [](int) { return std::string(); };
  return [loaded, name, directory](int ranks) -> std::string {
    if (!loaded->config.batch.given()) return "";
    try {
      check_plan(after_first_start(*loaded, directory), name,
                 {.ranks = ranks, .on_gpu = {}, .model = {}, .total_steps = {}});
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    } catch (const LoadError&) {
      return "";  // the program reports this
    }
  };
}

double grace_of(const std::vector<std::string>& arguments) {
  const auto loaded = load_config_of(arguments);
  return loaded ? loaded->config.zero_core.preempt_grace_s : 0;
}

bool may_copy_to_peers(const std::vector<std::string>& arguments) {
  const ProgramConfig given = read_program_config(arguments);
  const auto loaded = load_config_of(arguments);
  return !loaded || (given.file.empty() && given.overrides.empty()) ||
         loaded->config.zero_core.peer_copies > 0;
}

}  // namespace zero::tool
