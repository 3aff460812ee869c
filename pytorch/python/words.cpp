#include "pytorch/python/words.h"

#include <regex>
#include <utility>

std::string in_python(std::string message) {
  // The first expression that matches wins.
  static const std::pair<std::regex, const char*> words[] = {
      {std::regex(R"(run every element of Engine::micro_steps\(\))"),
       "forward and backward come before"},
      {std::regex(R"(Engine::(begin_micro_step|micro_steps|evaluate)\(\))"), "a pass of the model"},
      {std::regex(R"(Evaluation::next\(\))"), "an evaluation pass"},
      {std::regex(R"(MicroStep::loss\(\))"), "engine.backward()"},
      {std::regex(R"(Engine::resume\(\))"), "engine.load_checkpoint()"},
      {std::regex(R"(Engine::(initialize|initialize_rest)\(\))"), "engine.write()"},
      {std::regex(R"(Engine::compute_dtype\(\))"), "bf16.enabled and fp16.enabled in the config"},
      {std::regex(R"(Engine::drop_gradients\(\))"), "engine.zero_grad()"},
      {std::regex(R"(Engine::read_gradient\(\))"), "engine.read(parameter, \"grad\")"},
      {std::regex(R"(Engine::(forward_order|backward_units|adopt)\(\))"), "the engine's $1"},
      {std::regex(R"(\b(Engine|Runtime)::(\w+)\b)"), "engine.$2"},
      {std::regex(R"(StepOptions::(\w+))"), "the step's $1"},
      {std::regex(R"(SaveOptions::(\w+))"), "the save's $1"},
      {std::regex(R"(train_gpt --resume TAG)"), "load_checkpoint(tag=...)"},
  };
  for (const auto& [name, replacement] : words)
    message = std::regex_replace(message, name, replacement);
  return message;
}
