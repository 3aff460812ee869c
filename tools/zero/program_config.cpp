#include "tools/zero/program_config.h"

#include <array>
#include <memory>
#include <string_view>

#include "config_schemas/load.h"
#include "tools/zero/config_plan.h"
#include "zero/base/error.h"

namespace zero::tool {
namespace {

// The config file and the overrides among the arguments.
struct Given {
  std::string file;
  Text overrides;
};

// Returns the value of an option, given as "--name=value" or as the next argument.
const char* value_of(const std::vector<std::string>& arguments, std::size_t at,
                     std::string_view name) {
  const std::string& word = arguments[at];
  if (!word.starts_with(name)) return nullptr;
  if (word.size() > name.size()) return word[name.size()] == '=' ? &word[name.size() + 1] : nullptr;
  return at + 1 < arguments.size() ? arguments[at + 1].c_str() : nullptr;
}

Given read_arguments(const std::vector<std::string>& arguments) {
  constexpr std::array<std::string_view, 3> files = {"--deepspeed_config", "--deepspeed-config",
                                                     "--deepspeed"};
  Given given;
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    for (const std::string_view name : files)
      if (const char* file = value_of(arguments, at, name); file != nullptr && *file != '-')
        given.file = file;
    const char* set = value_of(arguments, at, "--set");
    const std::string setting = set != nullptr ? set : "";
    if (const std::size_t equals = setting.find('='); equals != std::string::npos)
      given.overrides[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return given;
}

}  // namespace

std::function<std::string(int)> refusal_of_ranks(const std::vector<std::string>& arguments) {
  using namespace config_schemas;
  const Given given = read_arguments(arguments);
  const std::string name = given.file.empty() ? "the config" : given.file;
  std::shared_ptr<const Loaded> loaded;
  try {
    loaded = std::make_shared<Loaded>(
        given.file.empty() ? load_text("{}", name, given.overrides, {}, Purpose::check)
                           : load_file(given.file, given.overrides, {}, Purpose::check));
  } catch (const ConfigError&) {
    return [](int) { return std::string(); };
  }
  return [loaded, name](int ranks) -> std::string {
    const BatchOptions& batch = loaded->config.batch;
    if (batch.train_batch_size == 0 && batch.train_micro_batch_size_per_gpu == 0) return "";
    try {
      check_plan(*loaded, name, {.ranks = ranks, .on_gpu = {}, .model = {}, .total_steps = {}});
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
}

}  // namespace zero::tool
