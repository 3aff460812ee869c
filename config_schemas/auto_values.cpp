#include "config_schemas/auto_values.h"

#include <algorithm>
#include <functional>
#include <map>

#include "zero/base/number_text.h"

namespace zero::config_schemas {
namespace {

using AutoRule = std::function<std::string(const AutoContext&)>;

std::string number(double value) {
  return shortest_text(value);
}

std::string number(std::int64_t value) {
  return std::to_string(value);
}

std::string number(const std::optional<std::int64_t>& value) {
  return value ? number(*value) : "";
}

// Returns a multiple of the model's width; empty if the width is unknown or out of range.
std::string of_width(const AutoContext& context, double factor, bool squared) {
  if (!context.trainer.hidden_size) return "";
  const auto width = static_cast<double>(*context.trainer.hidden_size);
  const double elements = factor * width * (squared ? width : 1);
  if (!(elements >= 1 && elements < 0x1p53)) return "";
  return number(static_cast<std::int64_t>(elements));
}

const std::map<std::string_view, AutoRule>& auto_rules() {
  using Context = const AutoContext&;
  static const std::map<std::string_view, AutoRule> table = {
      {"train_batch_size", [](Context) { return ""; }},
      {"train_micro_batch_size_per_gpu",
       [](Context c) { return number(c.trainer.micro_batch_size); }},
      {"gradient_accumulation_steps",
       [](Context c) { return number(c.trainer.accumulation_steps); }},
      {"gradient_clipping", [](Context c) { return number(c.trainer.gradient_clipping); }},
      {"steps_per_print", [](Context) { return ""; }},
      {"optimizer.params.lr", [](Context c) { return number(c.trainer.learning_rate); }},
      {"optimizer.params.weight_decay", [](Context c) { return number(c.trainer.weight_decay); }},
      {"optimizer.params.eps", [](Context c) { return number(c.trainer.epsilon); }},
      {"optimizer.params.betas",
       [](Context c) {
         return "[" + number(c.trainer.beta1) + ", " + number(c.trainer.beta2) + "]";
       }},
      {"scheduler.params.warmup_min_lr", [](Context) { return "0"; }},
      {"scheduler.params.warmup_max_lr", [](Context c) { return number(c.learning_rate); }},
      // No warmup is 0 steps for the Trainer, but DeepSpeed refuses 0; 1 is the shortest.
      {"scheduler.params.warmup_num_steps",
       [](Context c) { return number(std::max<std::int64_t>(1, c.trainer.warmup_steps)); }},
      {"fp16.enabled", [](Context c) { return c.trainer.fp16 ? "true" : "false"; }},
      {"bf16.enabled", [](Context c) { return c.trainer.bf16 ? "true" : "false"; }},
      {"zero_optimization.reduce_bucket_size", [](Context c) { return of_width(c, 1, true); }},
      {"zero_optimization.stage3_prefetch_bucket_size",
       [](Context c) { return of_width(c, 0.9, true); }},
      {"zero_optimization.stage3_param_persistence_threshold",
       [](Context c) { return of_width(c, 10, false); }},
  };
  return table;
}

}  // namespace

bool is_left_to_program(const Key& key) {
  return key.path == "scheduler.params.total_num_steps";
}

std::optional<std::string> auto_value(const Key& key, const AutoContext& context) {
  if (is_left_to_program(key)) {
    if (!context.trainer.total_steps) return std::nullopt;
    return number(*context.trainer.total_steps);
  }
  const auto rule = auto_rules().find(key.path);
  if (rule != auto_rules().end()) return rule->second(context);
  // In sections that DeepSpeed validates, "auto" means the default.
  if (converts_values(key.path)) return "";
  return std::nullopt;
}

}  // namespace zero::config_schemas
