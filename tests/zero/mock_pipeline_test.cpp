// Pipelines on devices whose streams run in any order.
#include <doctest/doctest.h>

#include <optional>

#include "tests/support/mock_ranks.h"
#include "tests/support/stage_rows.h"
#include "tests/support/staged_chain.h"

namespace {

constexpr mock::Order orders[] = {mock::Order::compute_first,  mock::Order::communication_first,
                                  mock::Order::one_last,       mock::Order::random,
                                  mock::Order::one_queue,      mock::Order::in_turn,
                                  mock::Order::compute_at_once};

// Returns the outcome of the last rank.
staged::Outcome train(int stages, int data_ranks, mock::Order order, const zero::Config& config,
                      const staged::Variant& variant = {.tied = true}) {
  staged::Outcome outcome;
  mock::run_ranks(stages * data_ranks, order, 3,
                  [&](zero::Runtime& runtime) {
                    const staged::Outcome own =
                        staged::Training(runtime, config, variant).begin().run(2);
                    if (runtime.pipeline_stage() + 1 == stages && runtime.rank() == 0)
                      outcome = own;
                  },
                  mock::connect_threads, {.stages = stages});
  return outcome;
}

}  // namespace

TEST_CASE("a device runs the stages of a pipeline with equal bits in every order of its streams") {
  for (const auto& row : zero::tests::stage_rows())
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "breadth_first"}) {
      zero::Config config = staged::config_of(4);
      row.change(config);
      config.bf16_enabled = true;
      config.pipeline = staged::schedule_named(schedule);
      CAPTURE(row.name);
      CAPTURE(schedule);
      std::optional<staged::Outcome> first;
      for (const mock::Order order : orders) {
        const staged::Outcome own = train(2, 1, order, config);
        CHECK(own == first.value_or(own));
        first = own;
        CHECK(train(3, 1, order, config) == own);
      }
      CHECK(train(2, 2, orders[0], config) == train(2, 2, orders[1], config));
    }
}

TEST_CASE("a device has the bits of rank_independent on any stages and data ranks") {
  for (const int zero_stage : {0, 3}) {
    zero::Config config = staged::config_of(0);
    config.batch.train_batch_size = 5 * staged::samples;
    config.zero_optimization.stage = zero_stage;
    config.zero_core.rank_independent = config.zero_core.deterministic = true;
    config.zero_core.rank_independent_group = 2;
    CAPTURE(zero_stage);
    const staged::Outcome plain = train(1, 1, orders[0], config, {});
    for (const mock::Order order : orders) {
      CHECK(train(2, 2, order, config, {}) == plain);
      CHECK(train(3, 1, order, config, {}) == plain);
    }
  }
}
