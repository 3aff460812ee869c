#include "examples/gpt/train/same_on_all_ranks.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "examples/gpt/cpu/gemm.h"
#include "examples/gpt/model/family.h"

namespace gpt {
namespace {

std::string given(bool is_given) {
  return is_given ? "given" : "not given";
}

// Collective, since the rank that finds the difference first may not be the root; every rank
// throws.
void note_products(zero::Runtime& runtime, const zero::Engine& engine) {
  try {
    runtime.agree("matrix products (library, version, instruction set)", Gemm::version());
  } catch (const zero::DisagreementError& error) {
    if (engine.config().zero_core.deterministic) throw;
    if (runtime.is_root())
      std::fprintf(stderr,
                   "zero: notice: %s\nlosses and weights are right, but their bits depend on which "
                   "rank is on which host; zero_core.deterministic makes this an error\n",
                   error.what());
  }
}

}  // namespace

void agree_on_options(zero::Runtime& runtime, const Options& o) {
  std::string compared;
  for (const zero::report::StageVariant& variant : o.compared)
    compared += (compared.empty() ? "" : ",") + variant.name;
  runtime.agree({{"train_gpt", ZERO_VERSION},
                 {"--compare-stages", compared},
                 {"--device", o.device},
                 {"--steps", std::to_string(o.steps)},
                 {"--sequence-length", std::to_string(o.sequence_length)},
                 {"--init", given(!o.init_file.empty())},
                 {"--log-json", given(!o.log_file.empty())},
                 {"--save-model", o.save_directory},
                 {"--max-shard-size", std::to_string(o.max_shard_bytes)},
                 {"--product-file", given(!o.product_file.empty())},
                 {"--separate-products", given(o.separate_products)},
                 {"--any-order-attention", given(o.any_order_attention)},
                 {"--attention-workspace", std::to_string(o.attention_workspace)},
                 {"--checkpoint", o.checkpoint_directory},
                 {"--resume", o.resume},
                 {"--save-every", std::to_string(o.save_every)},
                 {"--save-minutes", std::to_string(o.save_minutes)},
                 {"--keep", std::to_string(o.keep)},
                 {"--overwrite-later", given(o.overwrite_later)},
                 {"--generate", std::to_string(o.generate)},
                 {"--prompt", o.prompt},
                 {"--temperature", std::to_string(o.temperature)},
                 {"--top-k", std::to_string(o.top_k)}});
}

void agree_on_inputs(zero::Runtime& runtime, const zero::Engine& engine, const Task& task) {
  zero::Text values = task.data->fingerprint();
  const nlohmann::json model = json_of(task.model);
  for (const auto& [key, value] : model.items()) values["--model: " + key] = value.dump();
  runtime.agree(values);
  if (task.options.device == "cpu") note_products(runtime, engine);
}

}  // namespace gpt
