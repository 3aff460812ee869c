// Two examples for the help of each command.
#include <array>
#include <stdexcept>

#include "tools/options/command_line.h"
#include "tools/zero/commands.h"

namespace zero::tool {
namespace {

struct Examples {
  const char* command;
  std::array<const char*, 2> lines;
};

constexpr Examples all_examples[] = {
    {"zero config",
     {"zero config check ds_config.json", "zero config new --stage 3 >ds_config.json"}},
    {"zero checkpoint", {"zero checkpoint inspect saves", "zero checkpoint export saves model"}},
    {"zero completion",
     {"source <(zero completion bash)",
      "zero completion fish >~/.config/fish/completions/zero.fish"}},
    {"zero config check",
     {"zero config check ds_config.json",
      "zero config check ds_config.json --world-size 8 --model 7Bx32"}},
    {"zero config explain",
     {"zero config explain ds_config.json --world-size 64 --per-node 8",
      "zero config explain zero_optimization.stage"}},
    {"zero config new",
     {"zero config new --stage 3 --bf16 >ds_config.json",
      "zero config new --stage 2 --micro-batch 4 --accumulation 8 --lr 3e-4"}},
    {"zero plan",
     {"zero plan --model gpt2-xl --ranks 8 --device a100",
      "zero plan --deepspeed_config ds_config.json --params 7Bx32 --ranks 64 --memory"}},
    {"zero calibrate",
     {"zero calibrate -n 2 --write node.json",
      "zero calibrate -n 8 --hostfile hosts --write node.json"}},
    {"zero doctor", {"zero doctor", "zero doctor -n 16 --hostfile hosts"}},
    {"zero run",
     {"zero run -n 4 train_gpt --deepspeed_config ds_config.json --model gpt2 --data text.txt",
      "zero run -n 4 --restarts 5 python train.py"}},
    {"zero tune",
     {"zero tune -n 4 train_gpt --deepspeed_config ds_config.json --model gpt2",
      "zero tune -n 2 --rows 0,2,3 --write best.json train_gpt --model tiny"}},
    {"zero checkpoint inspect",
     {"zero checkpoint inspect saves", "zero checkpoint inspect saves --tag global_step100"}},
    {"zero checkpoint verify",
     {"zero checkpoint verify saves", "zero checkpoint verify saves --tag global_step100"}},
    {"zero checkpoint export",
     {"zero checkpoint export saves model",
      "zero checkpoint export saves model --dtype bf16 --max-shard-size 5GB"}},
    {"zero checkpoint diff",
     {"zero checkpoint diff saves other_saves", "zero checkpoint diff saves saves --tag step-20"}},
    {"zero compare", {"zero compare run_a run_b", "zero compare a.jsonl b.jsonl --report both"}},
    {"zero names", {"zero names FusedAdam", "zero names deepspeed.runtime.pipe"}},
    {"zero completion bash",
     {"source <(zero completion bash)", "echo 'source <(zero completion bash)' >>~/.bashrc"}},
    {"zero completion zsh",
     {"source <(zero completion zsh)", "echo 'source <(zero completion zsh)' >>~/.zshrc"}},
    {"zero completion fish",
     {"zero completion fish | source",
      "zero completion fish >~/.config/fish/completions/zero.fish"}},
};

const Examples& examples_of(const std::string& command) {
  for (const Examples& examples : all_examples)
    if (examples.command == command) return examples;
  throw std::logic_error("examples.cpp has no example of " + command);
}

}  // namespace

void add_examples(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;
    add_examples(*command);
    std::string text = "Examples:";
    for (const char* line : examples_of(full_name(*command)).lines)
      text += "\n  " + std::string(line);
    const std::string footer = command->get_footer();
    command->footer(text + (footer.empty() ? "" : "\n\n" + footer));
  }
}

}  // namespace zero::tool
