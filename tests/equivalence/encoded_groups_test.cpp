// Reductions in wire formats that sum inside groups first: stages and shard groups have the same
// bits if they encode the same sums, and differ otherwise.
#include <doctest/doctest.h>

#include <string>

#include "tests/support/hybrid_rows.h"
#include "tests/support/toy_ranks.h"

namespace {

constexpr int steps = 8;

// Uses two micro steps.
zero::Config reduced_as(const char* format, bool bf16) {
  zero::Config config = toy::config(3, {}, 2);
  config.bf16_enabled = bf16;
  config.zero_core.gradient_sync = zero::GradientSync::each;
  config.zero_core.wire.reduce = format;
  config.zero_core.wire.block_size = 32;
  config.zero_core.verify_every = 1;
  return config;
}

}  // namespace

TEST_CASE("reductions in two hops: hybrid strategies have the bits of stage 3, in 16 bits too") {
  for (const bool fp16 : {false, true})
    for (const auto sync :
         {zero::GradientSync::each, zero::GradientSync::last, zero::GradientSync::inner}) {
      CAPTURE(fp16);
      zero::Config config = reduced_as("none", !fp16);
      config.fp16_enabled = fp16;
      config.loss_scale.loss_scale = 64;
      if (sync != zero::GradientSync::last) config.grad_accum_dtype = zero::DType::fp32;
      config.zero_core.gradient_sync = sync;
      config.zero_optimization.quantized_gradients = true;
      const toy::Trace expected = toy::train_ranks(4, hybrid::with_sums_of(config, 2), steps);
      for (const hybrid::Row& row : hybrid::rows) {
        CAPTURE(std::string(row.name));
        CHECK(toy::train_ranks(4, hybrid::in_groups(config, row, 2), steps) == expected);
      }
    }
}

TEST_CASE("encoded sums in nested groups, and with another format inside nodes") {
  zero::Config config = reduced_as("none", true);
  config.zero_core.reduce_group_size = 2;
  config.zero_core.wider_reduce_groups = {4};
  const auto in_groups = [&](const hybrid::Row& row, int group) {
    zero::Config grouped = hybrid::in_groups(config, row, group);
    grouped.zero_core.reduce_group_size = 2;
    return grouped;
  };
  config.zero_optimization.quantized_gradients = true;
  const toy::Trace hops = toy::train_ranks(8, config, 4);
  for (const auto& row : {hybrid::rows[0], hybrid::rows[3]})
    CHECK(toy::train_ranks(8, in_groups(row, 4), 4) == hops);
  // Hops of gathers have one size, hops of reductions another.
  config.zero_core.wire.gather = "int8";
  config.zero_core.wire.gather_inside = "none";
  config.zero_core.gradient_sync = zero::GradientSync::inner;
  const toy::Trace both = toy::train_ranks(8, config, 4);
  CHECK(toy::train_ranks(8, in_groups(hybrid::rows[2], 4), 4) == both);
  config.zero_core.wire.gather_inside = "";
  CHECK(toy::train_ranks(8, config, 4) == both);
  // Shard groups of a node.
  config = reduced_as("int4", true);
  config.zero_core.reduce_group_size = 2;
  for (const char* inside : {"int8", "none"}) {
    CAPTURE(std::string(inside));
    config.zero_core.wire.reduce_inside = inside;
    const toy::Trace nodes = toy::train_ranks(4, config, 4);
    for (const auto& row : {hybrid::rows[0], hybrid::rows[3]})
      CHECK(toy::train_ranks(4, in_groups(row, 2), 4) == nodes);
  }
}

TEST_CASE("encodings are reported, and rows with different encodings have different bits") {
  zero::Config config = reduced_as("int8", true);
  const auto said = [](const zero::Config& given) {
    std::string text;
    zero::testing::run_ranks(4, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe({}), given);
      engine.initialize(toy::fill);
      const zero::EngineReport report = engine.report();
      if (runtime.is_root()) text = report.encodings;
    });
    return text;
  };
  const zero::Config stage = hybrid::with_sums_of(config, 2),
                     groups = hybrid::in_groups(config, hybrid::rows[0], 2);
  CHECK(said(stage) == "gradients as int8 in blocks of 32 of each rank");
  CHECK(said(groups) ==
        "gradients as int8 in blocks of 32 of each rank, then int8 in blocks of 32 of sums of 2 "
        "ranks");
  CHECK(toy::train_ranks(4, stage, steps) != toy::train_ranks(4, groups, steps));
  config.zero_core.wire.gather = "bf16";
  config.zero_core.wire.reduce = "none";
  CHECK(said(config) == "parameters as bf16");
  config.zero_core.wire.gather = "none";
  CHECK(said(config).empty());
}
