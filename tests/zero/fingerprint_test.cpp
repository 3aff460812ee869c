// Values that must be equal on all ranks, and weights by content, are compared by name.
#include "zero/runtime/fingerprint.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"
#include "zero/checkpoint/safetensors_file.h"
#include "zero/testing.h"

namespace {

using zero::tests::contains;
using zero::tests::refusal;

const toy::Dims dims;

std::string disagreement(int ranks, const std::function<void(zero::Runtime&)>& body) {
  return refusal<zero::DisagreementError>([&] { zero::testing::run_ranks(ranks, body); });
}

// Writes the toy model's weights, equal to its own start values except for one element of one
// tensor.
void write_weights(zero::Runtime& runtime, const std::string& directory, float difference) {
  zero::Engine engine(runtime, toy::describe(dims), toy::config(0, dims));
  engine.initialize([&](zero::ParamShard shard) {
    toy::fill(shard);
    if (shard.name == "block.2.weight") shard.values[7] += difference;
  });
  engine.export_model(directory);
}

}  // namespace

TEST_CASE("equal values pass, of every kind and on any number of ranks") {
  for (const int ranks : {1, 2, 5})
    zero::testing::run_ranks(ranks, [](zero::Runtime& runtime) {
      runtime.agree("--steps", 100);
      runtime.agree("--steps", std::int64_t{1} << 60);
      runtime.agree("--model", "tiny");
      runtime.agree("--model", "");
      runtime.agree({});
      runtime.agree({{"a", "1"}, {"b", ""}, {"", "c"}});
    });
}

TEST_CASE("a value that differs is named with the ranks that have it") {
  CHECK(contains(disagreement(2, [](zero::Runtime& r) { r.agree("--steps", 3 + 2 * r.rank()); }),
                 "--steps: rank 0 has 3, rank 1 has 5"));
  CHECK(contains(
      disagreement(4,
                   [](zero::Runtime& r) { r.agree("--model", r.rank() == 2 ? "mini" : "tiny"); }),
      "--model: ranks 0, 1, 3 have tiny, rank 2 has mini"));
  const std::string several = disagreement(3, [](zero::Runtime& r) {
    r.agree({{"a", "same"},
             {"b", std::to_string(r.rank() / 2)},
             {"c", r.rank() == 0 ? "" : "x"},
             {"d" + std::to_string(r.rank() / 2), "1"}});
  });
  CHECK(!contains(several, "a: "));
  CHECK(contains(several, "b: ranks 0, 1 have 0, rank 2 has 1"));
  CHECK(contains(several, "c: rank 0 has \"\", ranks 1, 2 have x"));
  CHECK(contains(several, "d0: ranks 0, 1 have 1, rank 2 has no such value"));
  CHECK(contains(several, "d1: ranks 0, 1 have no such value, rank 2 has 1"));
}

TEST_CASE("a comparison that others do not enter is named with its values") {
  CHECK(contains(disagreement(2,
                              [](zero::Runtime& r) {
                                if (r.is_root())
                                  r.agree({{"a", "1"}, {"b", "2"}, {"c", "3"}});
                                else
                                  r.sum(1);
                              }),
                 "the comparison of a and 2 more values"));
}

TEST_CASE("the first eight of many differences and ranks are listed") {
  const std::string message = disagreement(11, [](zero::Runtime& r) {
    zero::Text values;
    for (int i = 0; i < 11; ++i)
      values[std::string(1, static_cast<char>('a' + i))] = r.rank() < 10 ? "x" : "y";
    r.agree(values);
  });
  CHECK(contains(message, "h: ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more have x, rank 10 has y"));
  CHECK(!contains(message, "i: "));
  CHECK(contains(message, "\n  and 3 more"));
}

TEST_CASE("weights are compared by content, whatever slices ranks read") {
  const zero::tests::TemporaryDirectory directory;
  {
    zero::Runtime runtime = zero::Runtime::single();
    write_weights(runtime, directory / "one", 0);
    write_weights(runtime, directory / "same", 0);
    write_weights(runtime, directory / "other", 0.5f);
  }
  const auto load = [&](zero::Runtime& runtime, int stage, const std::string& name) {
    zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
    engine.load_weights(directory / name);
  };
  for (const int stage : {0, 3}) {
    // If all ranks read one file, they divide the work; copies are compared with each other.
    zero::testing::run_ranks(3, [&](zero::Runtime& r) { load(r, stage, "one"); });
    zero::testing::run_ranks(
        3, [&](zero::Runtime& r) { load(r, stage, r.rank() == 1 ? "same" : "one"); });
    for (const int differing : {0, 2}) {
      const std::string message = disagreement(
          3, [&](zero::Runtime& r) { load(r, stage, r.rank() == differing ? "other" : "one"); });
      CHECK(contains(message, "block.2.weight is not the same on all ranks"));
      CHECK(contains(message, differing == 0 ? "ranks 1, 2 have" : "ranks 0, 1 have"));
    }
  }
}
