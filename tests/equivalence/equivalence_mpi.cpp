// The equivalence of stages over a real transport, under mpirun: equivalence_mpi shm|mpi. For
// equivalence_mpi hierarchical: only that of numbers of ranks.
#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/support/hybrid_rows.h"
#include "tests/support/toy_model.h"
#include "tests/support/toy_ranks.h"

namespace {

// Optimizers that need whole tensors communicate during the update.
void compare_optimizer(zero::Runtime& runtime, const char* type) {
  toy::Trace expected;
  for (const int stage : {0, 1, 3}) {
    zero::Config config = toy::config(stage, {});
    config.optimizer = zero::optim::default_options(type);
    config.optimizer.learning_rate = 0.01;
    const toy::Trace trace = toy::train(runtime, {}, config, 8);
    if (stage == 0) expected = trace;
    if (trace == expected) continue;
    runtime.fail(std::string(type) + " at stage " + std::to_string(stage) +
                 " differs from stage 0");
  }
}

void compare_hybrid(zero::Runtime& runtime) {
  const zero::Config base = toy::config(0, {}, 2);
  for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last}) {
    zero::Config config = base;
    config.zero_core.gradient_sync = sync;
    const toy::Trace expected = toy::train(runtime, {}, hybrid::with_sums_of(config, 2), 8);
    for (const hybrid::Row& row : hybrid::rows)
      if (toy::train(runtime, {}, hybrid::in_groups(config, row, 2), 8) != expected)
        runtime.fail(std::string(row.name) + " differs from stage 0");
  }
}

void compare_wire(zero::Runtime& runtime) {
  for (const char* format : {"int8", "mxfp8"}) {
    zero::Config config = toy::config(2, {}, 2);
    config.bf16_enabled = true;
    config.zero_core.wire.gather = config.zero_core.wire.reduce = format;
    const toy::Trace expected = toy::train(runtime, {}, config, 8);
    config.zero_optimization.stage = 3;
    if (toy::train(runtime, {}, config, 8) != expected)
      runtime.fail(std::string("stage 3 differs from stage 2, both with ") + format);
  }
}

// Thread ranks and processes have the same bits, so that one transport suffices for all.
void compare_hops(zero::Runtime& runtime) {
  zero::Config config = toy::config(3, {}, 2);
  config.zero_core.reduce_group_size = 2;
  config.zero_optimization.hpz_partition_size = 2;
  config.zero_optimization.quantized_weights = true;
  config.zero_optimization.quantized_gradients = true;
  const toy::Trace expected = toy::train_ranks(runtime.size(), config, 8);
  if (toy::train(runtime, {}, config, 8) != expected)
    runtime.fail("gradients in two hops differ from those of ranks that are threads");
}

// One rank in this process has the bits of all ranks over the transport.
void compare_with_one_rank(zero::Runtime& runtime, const zero::Config& config,
                           const std::string& name) {
  const toy::Trace expected = toy::train_ranks(1, config, 8);
  if (toy::train(runtime, {}, config, 8) != expected) runtime.fail(name + " differs from one rank");
}

void compare_ranks(zero::Runtime& runtime) {
  const toy::Dims d;
  for (const bool bf16 : {false, true})
    for (const int stage : {0, 1, 2, 3}) {
      zero::Config config = toy::config(stage, d);
      config.bf16_enabled = bf16;
      config.batch = {7 * d.batch, d.batch, 0};
      config.zero_core.rank_independent = true;
      compare_with_one_rank(runtime, config,
                            "stage " + std::to_string(stage) + ", bf16 " + std::to_string(bf16));
    }
}

// In the last micro step one rank has a micro batch, or all but one.
void compare_groups(zero::Runtime& runtime) {
  const toy::Dims d;
  const int fewest = runtime.size() + 1, most = 2 * runtime.size() - 1;
  for (const int batches : {fewest, most})
    for (const int group : {2, 3, 4})
      for (const int stage : {0, 3}) {
        zero::Config config = toy::config(stage, d);
        config.bf16_enabled = true;
        config.batch = {batches * d.batch, d.batch, 0};
        config.zero_core.rank_independent = true;
        config.zero_core.rank_independent_group = group;
        config.zero_core.verify_comm = batches == fewest;
        config.zero_optimization.reduce_bucket_size = batches == fewest ? 1000 : 1'000'000;
        compare_with_one_rank(runtime, config,
                              "stage " + std::to_string(stage) + ", " + std::to_string(batches) +
                                  " micro batches in groups of " + std::to_string(group));
      }
}

}  // namespace

int main(int argc, char** argv) {
  zero::RuntimeOptions options;
  options.transport = argc > 1 ? argv[1] : "auto";
  options.threads = 1;
  return zero::run(
      argc, argv,
      [over_nodes = options.transport == "hierarchical"](zero::Runtime& runtime) {
        if (runtime.is_root()) std::printf("%s\n", runtime.describe().c_str());
        compare_ranks(runtime);
        compare_groups(runtime);
        if (over_nodes) return;
        for (const char* type : {"AdamW", "Lamb", "Muon"}) compare_optimizer(runtime, type);
        for (const bool bf16 : {false, true})
          for (const int accumulation : {1, 3}) {
            toy::Trace expected;
            for (const int variant : {0, 1, 2, 3, 4}) {
              zero::Config config = toy::config(std::min(variant, 3), {}, accumulation);
              config.bf16_enabled = bf16;
              config.zero_core.gradient_sync = zero::GradientSync::each;
              config.zero_core.reshard_after_forward = variant != 4;
              const toy::Trace trace = toy::train(runtime, {}, config, 8);
              if (variant == 0) expected = trace;
              if (trace == expected) continue;
              runtime.fail("variant " + std::to_string(variant) + " differs from stage 0 (bf16 " +
                           std::to_string(bf16) + ", accumulation " + std::to_string(accumulation) +
                           ")");
            }
          }
        if (runtime.size() == 4) compare_hybrid(runtime);
        if (runtime.size() == 4) compare_hops(runtime);
        compare_wire(runtime);
        if (runtime.is_root()) std::printf("equal bits at every stage\n");
      },
      options);
}
