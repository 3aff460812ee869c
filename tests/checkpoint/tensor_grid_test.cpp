// Tensor parallelism next to data parallelism, on one grid of ranks: updates, norms, checkpoints
// and files of weights must be those of the whole model, to the bit. The model's kernels work
// element by element, so that a part of a parameter needs no exchange.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/mock_ranks.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/base/tensor_split.h"
#include "zero/saved_weights.h"
#include "zero/testing.h"

namespace {

using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

struct Parameter {
  const char* unit;
  const char* name;
  zero::Shape shape;  // of the whole
  int dim;            // that is divided; -1: every tensor rank has the whole
};

const std::vector<Parameter> parameters = {{"a", "columns", {7, 10}, 0},
                                           {"a", "rows", {5, 13}, 1},
                                           {"a", "bias", {9}, -1},
                                           {"b", "cube", {3, 8, 4}, 1},
                                           {"b", "last", {2, 3, 11}, 2}};

struct Grid {
  int data = 1, tensor = 1;
  int ranks() const { return data * tensor; }
  std::string text() const { return std::to_string(data) + " x " + std::to_string(tensor); }
};

// Uneven, unless the number of parts divides the size.
std::int64_t cut(std::int64_t size, int part, int parts) {
  return size * part / parts;
}

// The part of a tensor rank, with the number in the whole of each element.
struct Part {
  zero::Shape shape;
  std::vector<std::int64_t> numbers;

  Part(const Parameter& parameter, int part, int parts) : shape(parameter.shape) {
    std::int64_t first = 0, end = 1, outer = 1, inner = 1, size = 1;
    if (parameter.dim >= 0) {
      const auto dim = static_cast<std::size_t>(parameter.dim);
      size = shape[dim];
      first = cut(size, part, parts), end = cut(size, part + 1, parts);
      shape[dim] = end - first;
      for (std::size_t i = 0; i < shape.size(); ++i) {
        if (i < dim) outer *= shape[i];
        if (i > dim) inner *= shape[i];
      }
    } else {
      for (const std::int64_t s : shape) inner *= s;
    }
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t k = first; k < end; ++k)
        for (std::int64_t i = 0; i < inner; ++i) numbers.push_back((o * size + k) * inner + i);
  }
};

float start(std::int64_t number) {
  return 0.3f * std::sin(static_cast<float>(number * 7 + 1));
}

float gradient(float value, std::int64_t number, std::int64_t sample) {
  return 0.2f * value + std::cos(static_cast<float>(number * 3 + sample * 5));
}

struct Case {
  int stage = 3;
  std::string optimizer = "AdamW";
  bool names_dims = true;  // ParamOptions::split_dim
};

zero::ModelSpec describe(const zero::Runtime& runtime, const Case& c) {
  zero::ModelSpec spec;
  for (const char* unit : {"a", "b"}) {
    zero::UnitSpec& declared = spec.unit(unit);
    for (const Parameter& p : parameters) {
      if (std::string(p.unit) != unit) continue;
      zero::ParamOptions options;
      options.split = p.dim >= 0;
      if (options.split && c.names_dims) options.split_dim = p.dim;
      declared.param(p.name, Part(p, runtime.tensor_rank(), runtime.tensor_size()).shape, options);
    }
  }
  return spec;
}

zero::Config config_of(const Case& c) {
  zero::Config config;
  config.zero_optimization.stage = c.stage;
  config.optimizer.type = c.optimizer;
  config.optimizer.learning_rate = 0.01;
  config.optimizer.weight_decay = 0.1;
  config.gradient_clipping = 0.7;
  config.zero_core.deterministic = true;
  config.batch.train_micro_batch_size_per_gpu = 1;
  return config;
}

class Training {
 public:
  Training(zero::Runtime& runtime, const Case& c)
      : runtime_(runtime), engine_(runtime, describe(runtime, c), config_of(c)), launch_(runtime) {
    for (const Parameter& p : parameters)
      parts_.emplace_back(p, runtime.tensor_rank(), runtime.tensor_size());
  }

  zero::Engine& engine() { return engine_; }
  void initialize() {
    engine_.initialize([&](zero::ParamShard shard) {
      for (std::size_t p = 0; p < parameters.size(); ++p)
        if (shard.name == std::string(parameters[p].unit) + "." + parameters[p].name)
          for (std::size_t i = 0; i < shard.values.size(); ++i)
            shard.values[i] = start(parts_[p].numbers[static_cast<std::size_t>(shard.begin) + i]);
    });
  }
  zero::StepResult step() {
    for (zero::MicroStep micro : engine_.micro_steps()) {
      const std::int64_t sample = engine_.step_count() * runtime_.size() + runtime_.rank();
      for (zero::Unit& unit : engine_.units()) auto scope = unit.forward();
      micro.loss(static_cast<double>(sample));
      for (zero::Unit* unit : engine_.backward_units()) {
        auto scope = unit->backward();
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          if (unit->name() != parameters[p].unit) continue;
          const float* values = scope.value<float>(parameters[p].name);
          float* grad = scope.grad<float>(parameters[p].name);
          launch_([this, p, sample, values, grad] {
            for (std::size_t i = 0; i < parts_[p].numbers.size(); ++i)
              grad[i] += gradient(values[i], parts_[p].numbers[i], sample);
          });
        }
      }
    }
    return engine_.step().wait();
  }

 private:
  zero::Runtime& runtime_;
  zero::Engine engine_;
  mock::Launcher launch_;
  std::vector<Part> parts_;
};

void run(const Grid& grid, const std::function<void(zero::Runtime&)>& body) {
  zero::RuntimeOptions options;
  options.tensor_ranks = grid.tensor;
  zero::testing::run_ranks(grid.ranks(), body, options);
}

struct Outcome {
  std::uint64_t digest = 0;
  std::vector<double> norms, losses;
  std::vector<float> bias;  // which every tensor rank has
  bool operator==(const Outcome&) const = default;
};

Outcome train(zero::Runtime& runtime, const Case& c, int steps) {
  Training training(runtime, c);
  training.initialize();
  Outcome outcome;
  for (int s = 0; s < steps; ++s) {
    const zero::StepResult result = training.step();
    outcome.norms.push_back(result.grad_norm);
    outcome.losses.push_back(result.loss);
  }
  outcome.digest = training.engine().digest();
  outcome.bias.resize(9);
  training.engine().read("a.bias", "value", outcome.bias);
  return outcome;
}

Outcome train_on(const Grid& grid, const Case& c, int steps = 3) {
  std::vector<Outcome> all(static_cast<std::size_t>(grid.ranks()));
  run(grid, [&](zero::Runtime& runtime) {
    all[static_cast<std::size_t>(runtime.core().world_rank())] = train(runtime, c, steps);
  });
  for (const Outcome& each : all) CHECK(each == all.front());
  return all.front();
}

}  // namespace

TEST_CASE("the orders of the parts and of the whole map to each other") {
  for (const Parameter& p : parameters) {
    if (p.dim < 0) continue;
    for (const int parts : {1, 2, 3}) {
      zero::TensorSplit split{p.shape, p.dim, {}};
      std::vector<std::int64_t> whole;  // by number in the order of parts
      for (int part = 0; part < parts; ++part) {
        const std::int64_t size = p.shape[static_cast<std::size_t>(p.dim)];
        split.sizes.push_back(cut(size, part + 1, parts) - cut(size, part, parts));
        const std::vector<std::int64_t> numbers = Part(p, part, parts).numbers;
        whole.insert(whole.end(), numbers.begin(), numbers.end());
      }
      const auto elements = static_cast<std::int64_t>(whole.size());
      REQUIRE(split.elements() == elements);
      for (std::int64_t begin = 0; begin < elements; begin += 5) {
        const std::int64_t count = std::min<std::int64_t>(17, elements - begin);
        std::int64_t next = begin;
        // part: the number in the order of parts
        const auto check = [&](std::int64_t from, std::int64_t part, std::int64_t in_whole,
                               std::int64_t run) {
          CHECK(from == next);
          for (std::int64_t i = 0; i < run; ++i)
            CHECK(whole[static_cast<std::size_t>(part + i)] == in_whole + i);
          next = from + run;
        };
        split.for_parts(begin, count, [&](std::int64_t from, std::int64_t to, std::int64_t run) {
          check(from, from, to, run);
        });
        CHECK(next == begin + count);
        next = begin;
        split.for_whole(begin, count, [&](std::int64_t from, std::int64_t to, std::int64_t run) {
          check(from, to, from, run);
        });
        CHECK(next == begin + count);
      }
    }
  }
}

TEST_CASE("parts train to the bits of the whole at every stage") {
  for (const int stage : {0, 1, 2, 3})
    for (const char* optimizer : {"AdamW", "Lamb"})
      for (const int data : {1, 2, 3}) {
        const Case c{stage, optimizer};
        const Outcome whole = train_on({data, 1}, c);
        for (const int tensor : {2, 3}) {
          INFO("stage " << stage << " " << optimizer << " on " << Grid{data, tensor}.text());
          CHECK(train_on({data, tensor}, c) == whole);
        }
      }
}

TEST_CASE("a checkpoint of any grid loads on any other") {
  const std::vector<Grid> grids = {{2, 2}, {2, 1}, {4, 1}, {1, 3}, {3, 2}, {1, 1}};
  for (const int stage : {1, 3})
    for (const Grid& saving : grids) {
      const TemporaryDirectory directory;
      Outcome going_on;
      std::uint64_t saved = 0;
      run(saving, [&](zero::Runtime& runtime) {
        Training training(runtime, {stage});
        training.initialize();
        training.step();
        training.step();
        training.engine().save_checkpoint(directory.path(),
                                          {.rank_state = std::to_string(runtime.rank())});
        const std::uint64_t digest = training.engine().digest();
        const double norm = training.step().grad_norm;
        const std::uint64_t after = training.engine().digest();
        if (runtime.core().world_rank() != 0) return;
        saved = digest;
        going_on.norms.push_back(norm);
        going_on.digest = after;
      });
      for (const Grid& loading : grids) {
        INFO("stage " << stage << ", saved on " << saving.text() << ", loaded on "
                      << loading.text());
        run(loading, [&](zero::Runtime& runtime) {
          Training training(runtime, {stage});
          const auto resumed = training.engine().resume(directory.path());
          REQUIRE(resumed);
          CHECK(resumed->rank_states.size() == static_cast<std::size_t>(saving.data));
          CHECK(resumed->rank_states.back() == std::to_string(saving.data - 1));
          CHECK(training.engine().digest() == saved);
          if (loading.data != saving.data) return;
          CHECK(training.step().grad_norm == going_on.norms[0]);
          CHECK(training.engine().digest() == going_on.digest);
        });
      }
      const zero::SavedWeights weights(directory.path());
      CHECK(weights.entries().size() == parameters.size());
      CHECK(weights.entries()[0].shape == parameters[0].shape);
    }
}

TEST_CASE("files of weights have the whole, and are read in parts") {
  const TemporaryDirectory directory;
  std::vector<std::string> files;
  for (const Grid& grid : {Grid{1, 1}, Grid{2, 2}, Grid{1, 3}}) {
    const std::string folder = directory / std::to_string(files.size());
    run(grid, [&](zero::Runtime& runtime) {
      Training training(runtime, {2});
      training.initialize();
      training.engine().export_model(folder);
    });
    files.push_back(zero::tests::read_text(folder + "/model.safetensors"));
    CHECK(files.back() == files.front());
  }
  run({2, 2}, [&](zero::Runtime& runtime) {
    Training loaded(runtime, {3}), filled(runtime, {3});
    loaded.engine().load_weights(directory / "0");
    filled.initialize();
    CHECK(loaded.engine().digest() == filled.engine().digest());
  });
}

TEST_CASE("parts of an unknown dimension load at the same number of tensor ranks alone") {
  const TemporaryDirectory directory;
  const Case unknown{2, "AdamW", false};
  std::uint64_t saved = 0;
  run({2, 2}, [&](zero::Runtime& runtime) {
    Training training(runtime, unknown);
    training.initialize();
    training.step();
    training.engine().save_checkpoint(directory.path());
    const std::uint64_t digest = training.engine().digest();
    if (runtime.core().world_rank() == 0) saved = digest;
    CHECK(contains(
        refusal<zero::UsageError>([&] { training.engine().export_model(directory / "export"); }),
        "declare the dimension that is divided, ParamOptions::split_dim"));
  });
  run({3, 2}, [&](zero::Runtime& runtime) {
    Training training(runtime, unknown);
    training.engine().resume(directory.path());
    CHECK(training.engine().digest() == saved);
  });
  CHECK(contains(refusal<zero::LoadError>([&] {
                   run({2, 1}, [&](zero::Runtime& runtime) {
                     Training(runtime, unknown).engine().resume(directory.path());
                   });
                 }),
                 "a.columns has shape [70] in 2 parts (with ParamOptions::split_dim"));
  const zero::SavedWeights weights(directory.path());
  std::vector<std::byte> memory(70 * sizeof(float));
  CHECK(contains(refusal<zero::LoadError>([&] {
                   weights.read({{0, memory}});
                 }),
                 "a.columns is saved in 2 parts"));
}

TEST_CASE("tensor groups work on devices") {
  for (const char* optimizer : {"AdamW", "Lamb"})
    for (const int stage : {0, 2, 3}) {
      const Case c{stage, optimizer};
      const Outcome whole = train_on({2, 1}, c);
      for (const auto order : {mock::Order::random, mock::Order::one_last}) {
        INFO("stage " << stage << " " << optimizer);
        mock::run_ranks(4, order, 7,
                        [&](zero::Runtime& runtime) { CHECK(train(runtime, c, 3) == whole); },
                        mock::connect_threads, {.tensor_ranks = 2});
      }
    }
}

TEST_CASE("a number of tensor ranks that does not divide the ranks is refused") {
  zero::RuntimeOptions options;
  options.tensor_ranks = 2;
  CHECK(contains(refusal<zero::TopologyError>([&] {
                   zero::testing::run_ranks(
                       3, [](zero::Runtime&) {}, options);
                 }),
                 "tensor_ranks is 2, which does not divide 3 ranks"));
  zero::ModelSpec spec;
  CHECK(contains(refusal<zero::UsageError>([&] {
                   spec.unit("u").param("w", {2, 3}, {.split_dim = 2});
                 }),
                 "u.w has shape [2, 3], and split_dim 2 is no dimension of it"));
}
