// A checkpoint of the manifest's first schema, saved by two ranks at stage 2 with bf16. Such
// checkpoints must load forever.
#include <doctest/doctest.h>

#include <string>

#include "zero/testing.h"

TEST_CASE("a checkpoint of schema 1 loads at other stages and numbers of ranks") {
  for (const int ranks : {1, 2, 3})
    for (const int stage : {0, 1, 3})
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
        zero::ModelSpec model;
        model.unit("a")
            .param("w", {12, 16})
            .param("frozen", {7}, {.trainable = false})
            .buffer("mean", {3});
        model.unit("b").param("v", {5}).buffer("count", {1}, zero::DType::int64);
        zero::Config config;
        config.batch.train_micro_batch_size_per_gpu = 1;
        config.zero_optimization.stage = stage;
        config.bf16_enabled = true;
        zero::Engine engine(runtime, model, config);
        const auto resumed = engine.resume(std::string(ZERO_SOURCE_DIR) + "/schema_1");
        const std::uint64_t digest = engine.digest();
        CHECK(resumed->step == 1);
        CHECK(resumed->client_state == zero::Text{{"epoch", "3"}});
        CHECK(resumed->rank_states == std::vector<std::string>{"zero", "one"});
        CHECK(engine.buffer<float>("a.mean")[2] == 3.f);
        CHECK(*engine.buffer<std::int64_t>("b.count") == 41);
        if (runtime.is_root()) CHECK(digest == 3535679488462230027u);  // the digest before the save
      });
}
