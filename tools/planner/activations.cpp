#include "tools/planner/activations.h"

#include <algorithm>
#include <numeric>

#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/block_plan.h"

namespace zero::planner {
namespace {

constexpr std::int64_t float_bytes = 4, index_bytes = 4;
constexpr std::int64_t logit_bytes_cpu = std::int64_t{64} << 20,
                       logit_bytes_gpu = std::int64_t{1} << 30;

std::int64_t sum_of(const std::vector<std::int64_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
}

// Returns the bytes of the loss head: normed rows with gradient, a chunk of logits, and losses.
std::int64_t head_bytes(const gpt::Dims& dims, const ActivationTerms& terms) {
  const std::int64_t rows = dims.rows(), least = terms.gpu ? 128 : 64;
  const std::int64_t logit = terms.gpu ? terms.element_bytes : float_bytes;
  const std::int64_t fitting =
      (terms.gpu ? logit_bytes_gpu : logit_bytes_cpu) / (logit * dims.vocabulary);
  const std::int64_t chunk = std::min(rows, std::max(least, fitting));
  return 2 * rows * dims.channels * terms.element_bytes + chunk * dims.vocabulary * logit +
         rows * (terms.gpu ? float_bytes : 2 * float_bytes);
}

// Returns the scratch memory of a CPU rank: for each thread the queries, keys, values and gradients
// of a head, and tiles of scores.
std::int64_t attention_scratch(const gpt::Dims& dims, const ActivationTerms& terms) {
  if (terms.gpu) return 0;
  constexpr std::int64_t most_rows = 128;
  const std::int64_t head = dims.sequence * dims.head_channels;
  const std::int64_t rows = std::min(most_rows, dims.sequence), tile = rows * dims.sequence;
  const std::int64_t in_type =
      4 * head + rows * dims.head_channels + (terms.element_bytes < float_bytes ? 2 * tile : 0);
  return terms.threads * (in_type * terms.element_bytes + 2 * (head + tile) * float_bytes);
}

}  // namespace

std::int64_t activation_bytes(const gpt::ModelConfig& config, const ActivationTerms& terms) {
  const gpt::Dims dims = gpt::dims_of(config, terms.tokens.batch, terms.tokens.sequence);
  const gpt::BlockPlan plan =
      gpt::block_plan_of(config, terms.gpu ? gpt::Products::joined : gpt::Products::apart);
  const StagePart part = terms.stage.value_or(StagePart{config.layers, true});
  const std::int64_t rows = dims.rows(), layers = part.layers;
  const std::int64_t held = terms.recompute ? std::min<std::int64_t>(layers, 1) : layers;
  const std::int64_t row = dims.channels * terms.element_bytes * rows;
  const auto norms =
      std::ranges::count(plan.operations, gpt::OperationKind::norm,
                         [](const gpt::PlannedOperation& o) { return o.operation.kind; });
  const std::int64_t norm_values = dims.norm == gpt::NormKind::layer ? 2 : 1;
  const std::int64_t kept = sum_of(plan.kept_widths) * rows * terms.element_bytes +
                            (norms * norm_values * rows + dims.heads * rows) * float_bytes;
  const std::int64_t passed = terms.stage ? 0 : (config.layers + 2) * row;  // and a gradient
  const bool turns = std::ranges::count(plan.operations, gpt::OperationKind::rope,
                                        [](const auto& o) { return o.operation.kind; }) > 0;
  const std::int64_t angles = turns ? dims.sequence * dims.head_channels * float_bytes : 0;
  return passed + angles + attention_scratch(dims, terms) + rows * index_bytes + held * kept +
         sum_of(plan.slot_widths) * rows * terms.element_bytes +
         (part.head ? head_bytes(dims, terms) : 0);
}

std::int64_t activation_bytes(const BlockSizes& sizes, const ActivationTerms& terms) {
  const std::int64_t rows = terms.tokens.rows(), wide = terms.element_bytes / 2;
  const std::int64_t block = 34 * rows * sizes.hidden * std::max<std::int64_t>(1, wide);
  const std::int64_t input = rows * sizes.hidden * terms.element_bytes;
  const StagePart part = terms.stage.value_or(StagePart{sizes.layers, true});
  const std::int64_t layers = part.layers, inputs = terms.stage ? 0 : layers;
  const std::int64_t blocks = terms.recompute ? inputs * input + block : layers * block;
  return blocks + (part.head ? 2 * rows * sizes.vocabulary * float_bytes : 0);
}

}  // namespace zero::planner
