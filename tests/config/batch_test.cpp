#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

#include "tests/config/config_support.h"

using namespace zero;
using zero::tests::has;
using zero::tests::refused_batch;

namespace {

void check_resolved(const BatchOptions& options, int ranks, const Batch& expected) {
  const Batch batch = resolve_batch(options, ranks);
  CHECK(batch.global == expected.global);
  CHECK(batch.micro == expected.micro);
  CHECK(batch.accumulation == expected.accumulation);
}

}  // namespace

TEST_CASE("the six cases that resolve") {
  check_resolved({32, 4, 2}, 4, {4, 2, 32});
  check_resolved({32, 4, 0}, 4, {4, 2, 32});
  check_resolved({32, 0, 2}, 4, {4, 2, 32});
  check_resolved({0, 4, 2}, 4, {4, 2, 32});
  check_resolved({32, 0, 0}, 4, {8, 1, 32});
  check_resolved({0, 4, 0}, 4, {4, 1, 16});
  check_resolved({0, 1, 0}, 1, {1, 1, 1});
}

TEST_CASE("neither the batch nor the micro batch: the error names the keys to give") {
  CHECK(
      refused_batch({}, 4) ==
      "the batch size is not given: give train_batch_size or train_micro_batch_size_per_gpu "
      "(train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks)");
  CHECK(has(refused_batch({0, 0, 8}, 4),
            "give train_batch_size or train_micro_batch_size_per_gpu in addition to "
            "gradient_accumulation_steps 8"));
}

TEST_CASE("batches that do not divide: all numbers, the derived ones, and those that would fit") {
  CHECK(refused_batch({33, 16, 0}, 2) ==
        "train_batch_size 33 is not train_micro_batch_size_per_gpu 16 x "
        "gradient_accumulation_steps 1 "
        "(derived) x 2 ranks; what fits: train_batch_size 32 or 64 on 2 ranks; train_batch_size 33 "
        "fits "
        "no number of ranks");
  CHECK(refused_batch({32, 4, 2}, 3) ==
        "train_batch_size 32 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps "
        "2 x 3 "
        "ranks; what fits: train_batch_size 24 or 48 on 3 ranks; train_batch_size 32 fits 4 ranks");
  CHECK(refused_batch({32, 16, 0}, 4) ==
        "train_batch_size 32 is not train_micro_batch_size_per_gpu 16 x "
        "gradient_accumulation_steps 0 "
        "(derived) x 4 ranks; what fits: train_batch_size 64 on 4 ranks; train_batch_size 32 fits "
        "1, 2 "
        "ranks");
  CHECK(refused_batch({10, 0, 2}, 4) ==
        "train_batch_size 10 is not train_micro_batch_size_per_gpu 1 (derived) x "
        "gradient_accumulation_steps 2 x 4 ranks; what fits: train_batch_size 8 or 16 on 4 ranks; "
        "train_batch_size 10 fits 1, 5 ranks");
  CHECK(has(refused_batch({2, 0, 0}, 3), "train_micro_batch_size_per_gpu 0 (derived)"));
  CHECK(has(refused_batch({720720, 1, 0}, 17),
            "fits 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ... ranks"));
  CHECK(has(refused_batch({4, 4, 2}, 1), "x 1 rank;"));
}

TEST_CASE("micro batches that do not depend on the ranks: micro steps follow") {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    const Batch batch = resolve_batch({96, 4, 0}, ranks, true);
    CHECK(batch.micro_batches == 24);
    CHECK(batch.micro == 4);
    CHECK(batch.global == 96);
    CHECK(batch.accumulation == (24 + ranks - 1) / ranks);
  }
  CHECK(refused_batch({96, 4, 0}, 25, true) ==
        "train_batch_size 96 / train_micro_batch_size_per_gpu 4 gives 24 micro batches per step, "
        "too few for 25 ranks: start at most 24");
  CHECK(has(refused_batch({97, 4, 0}, 2, true), "what fits: 96 or 100"));
  CHECK(resolve_batch({96, 4, 5}, 5, true).accumulation == 5);
  CHECK(has(refused_batch({96, 4, 4}, 5, true), "(5 on 5): leave the key out, or write \"auto\""));
  CHECK(has(refused_batch({0, 4, 0}, 2, true), "give both"));
  CHECK(has(refused_batch({96, 0, 0}, 2, true), "give both"));
}

TEST_CASE("out of range and beyond 64 bits") {
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  for (const BatchOptions& options : {BatchOptions{-1, 0, 0}, {8, -2, 0}, {8, 0, -3}})
    CHECK(has(refused_batch(options, 2), "allowed: an integer of at least 1"));
  CHECK(has(refused_batch({0, largest, 2}, 2), "do not fit in 64 bits"));
  CHECK(has(refused_batch({8, largest, largest}, 2), "is not"));
  CHECK(has(refused_batch({largest, 2, 0}, 2), "fits no number of ranks"));
  CHECK_THROWS_AS(resolve_batch({8, 0, 0}, 0), UsageError);
}

TEST_CASE("every combination agrees with DeepSpeed's arithmetic") {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (std::int64_t total = 0; total <= 24; ++total)
      for (std::int64_t micro = 0; micro <= 6; ++micro)
        for (std::int64_t steps = 0; steps <= 4; ++steps) {
          if (total == 0 && micro == 0) continue;
          std::int64_t t = total, m = micro, g = steps;
          if (t && m && !g) g = t / m / ranks;
          if (t && !m && g) m = t / ranks / g;
          if (t && !m && !g) g = 1, m = t / ranks;
          if (!t) g = g ? g : 1, t = m * g * ranks;
          const bool fits = m > 0 && g > 0 && t == m * g * ranks;
          if (fits)
            check_resolved({total, micro, steps}, ranks, {m, g, t});
          else
            CHECK_THROWS_AS(resolve_batch({total, micro, steps}, ranks), ConfigError);
        }
}
