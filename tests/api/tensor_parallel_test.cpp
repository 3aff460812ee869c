// Data parallelism x tensor parallelism in a program that owns MPI, under mpirun:
// tensor_parallel_test T, for T ranks per tensor group. Blocks cut as in Megatron-LM (a
// column-parallel and a row-parallel matrix, a replicated bias) are trained at every stage, and
// compared with the same model uncut on one rank.
#include <zero/mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int width = 24, hidden = 64, blocks = 3, steps = 6;
using Values = std::vector<float>;

int failures = 0;

void check(bool condition, const std::string& what) {
  if (condition) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d: FAILED: %s\n", rank, what.c_str());
  ++failures;
}

struct Groups {
  MPI_Comm data = MPI_COMM_NULL, model = MPI_COMM_NULL;
  int model_rank = 0, model_size = 1;
};

struct Case {
  int stage = 0;
  std::string optimizer = "AdamW", clipping = "0.3";
  int accumulation = 1;
  std::string file_directory = "";  // if not empty: optimizer state is offloaded to a file there
  int bad_step = -1;           // step at which the last rank's gradient of block 1 is not finite
  bool marks_split = true;     // as required
  bool equal_biases = true;    // as required
};

struct Outcome {
  std::vector<double> losses, norms, up_norms;
  std::vector<bool> skipped;
  Values bias, up;
};

float start(int block, int which, int i, int j) {
  return 0.25f *
         std::sin(static_cast<float>(block * 31 + which * 17 + i * 7 + j * 13 + i * j % 11));
}

zero::ModelSpec describe(const Groups& groups, const Case& c) {
  const int part = hidden / groups.model_size;
  zero::ModelSpec model;
  zero::ParamOptions rows;
  if (c.marks_split) rows.split_dim = 0;
  for (int b = 0; b < blocks; ++b)
    model.unit("b" + std::to_string(b))
        .param("up", {part, width}, rows)
        .param("down", {width, part}, {.split_dim = 1})
        .param("bias", {width}, {.decay = false});
  return model;
}

void fill(const Groups& groups, const Case& c, zero::ParamShard shard) {
  const int part = hidden / groups.model_size, block = shard.name[1] - '0';
  for (std::size_t k = 0; k < shard.values.size(); ++k) {
    const int at = static_cast<int>(shard.begin) + static_cast<int>(k);
    if (shard.name.ends_with("up"))
      shard.values[k] = start(block, 0, groups.model_rank * part + at / width, at % width);
    else if (shard.name.ends_with("down"))
      shard.values[k] = start(block, 1, at / part, groups.model_rank * part + at % part);
    else
      shard.values[k] = c.equal_biases ? 0.01f : static_cast<float>(groups.model_rank);
  }
}

struct Network {
  explicit Network(const Groups& g) : groups(g), part(hidden / g.model_size) {
    for (auto& v : x) v.resize(width);
    for (auto& v : a) v.resize(static_cast<std::size_t>(part));
  }
  void add_up(Values& values) const {
    if (groups.model_size > 1)
      MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                    MPI_SUM, groups.model);
  }

  void forward(zero::Engine& engine, long sample) {
    for (int i = 0; i < width; ++i) x[0][i] = std::cos(static_cast<float>(sample % 16 * (i + 2)));
    for (int b = 0; b < blocks; ++b) {
      auto scope = engine.units()[static_cast<std::size_t>(b)].forward();
      const float *up = scope.value<float>("up"), *down = scope.value<float>("down");
      for (int i = 0; i < part; ++i) {
        float sum = 0;
        for (int j = 0; j < width; ++j) sum += up[i * width + j] * x[b][j];
        a[b][i] = std::tanh(sum);
      }
      for (int i = 0; i < width; ++i) {
        float sum = 0;
        for (int j = 0; j < part; ++j) sum += down[i * part + j] * a[b][j];
        x[b + 1][i] = sum;
      }
      add_up(x[b + 1]);
      for (int i = 0; i < width; ++i) x[b + 1][i] += scope.value<float>("bias")[i] + x[b][i];
    }
  }

  void backward(zero::Engine& engine, Values d, bool bad) {
    Values da(static_cast<std::size_t>(part)), dx(width);
    for (zero::Unit* unit : engine.backward_units()) {
      const int b = unit->index();
      auto scope = unit->backward();
      const float *up = scope.value<float>("up"), *down = scope.value<float>("down");
      float *dup = scope.grad<float>("up"), *ddown = scope.grad<float>("down"),
            *dbias = scope.grad<float>("bias");
      for (int i = 0; i < width; ++i) dbias[i] += d[i];
      for (int j = 0; j < part; ++j) {
        float sum = 0;
        for (int i = 0; i < width; ++i)
          sum += down[i * part + j] * d[i], ddown[i * part + j] += d[i] * a[b][j];
        da[j] = sum * (1 - a[b][j] * a[b][j]);
      }
      std::fill(dx.begin(), dx.end(), 0.f);
      for (int j = 0; j < part; ++j)
        for (int i = 0; i < width; ++i)
          dup[j * width + i] += da[j] * x[b][i], dx[i] += da[j] * up[j * width + i];
      if (bad && b == 1) dup[0] = std::numeric_limits<float>::quiet_NaN();
      add_up(dx);
      for (int i = 0; i < width; ++i) d[i] += dx[i];
    }
  }

  const Groups& groups;
  int part;
  Values x[blocks + 1], a[blocks];
};

zero::Config config_of(const Case& c) {
  zero::Text settings = {{"train_micro_batch_size_per_gpu", "1"},
                         {"gradient_accumulation_steps", std::to_string(c.accumulation)},
                         {"zero_optimization.stage", std::to_string(c.stage)},
                         {"optimizer.type", c.optimizer},
                         {"optimizer.params.lr", "0.01"},
                         {"gradient_clipping", c.clipping}};
  if (!c.file_directory.empty()) {
    settings["zero_optimization.offload_optimizer.device"] = "nvme";
    settings["zero_optimization.offload_optimizer.nvme_path"] = c.file_directory;
  }
  return zero::load_config("", settings);
}

Outcome train(zero::Runtime& runtime, const Groups& groups, const Case& c) {
  zero::Engine engine(runtime, describe(groups, c), config_of(c));
  engine.initialize([&](zero::ParamShard shard) { fill(groups, c, shard); });
  Network network(groups);
  Outcome outcome;
  zero::StepOptions options;
  options.inspect = [&](zero::Gradients& gradients) {
    outcome.up_norms.push_back(gradients.norm("b1.up"));
    return zero::Decision::apply;
  };
  const bool last =
      runtime.rank() + 1 == runtime.size() && groups.model_rank + 1 == groups.model_size;
  for (int step = 0; step < steps; ++step) {
    const long first = static_cast<long>(step) * engine.batch().global;
    for (zero::MicroStep micro : engine.micro_steps()) {
      network.forward(engine, first + micro.index() * runtime.size() + runtime.rank());
      double loss = 0;
      Values d(width);
      for (int i = 0; i < width; ++i) {
        const float error = network.x[blocks][i] - network.x[0][(i + 5) % width];
        loss += 0.5 * error * error;
        d[i] = error * micro.loss_scale();
      }
      micro.loss(loss);
      network.backward(engine, d, last && step == c.bad_step);
    }
    const zero::StepResult result = engine.step(options).wait();
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
    outcome.skipped.push_back(result.skipped);
  }
  outcome.bias.resize(width);
  outcome.up.resize(static_cast<std::size_t>(hidden / groups.model_size * width));
  engine.read("b1.bias", "value", outcome.bias);
  engine.read("b2.up", "value", outcome.up);
  return outcome;
}

zero::Runtime adopt(const Groups& groups) {
  return zero::adopt(groups.data, groups.model,
                     {.abort_job = false, .catch_signals = false, .threads = 1});
}

bool near(double a, double b) {
  return std::fabs(a - b) <= 2e-5 * (std::fabs(a) + std::fabs(b)) + 1e-6;
}

void compare(const Groups& groups, const Outcome& split, const Outcome& whole,
             const std::string& name) {
  for (std::size_t s = 0; s < split.losses.size(); ++s) {
    const std::string at = name + ", step " + std::to_string(s + 1);
    check(split.skipped[s] == whole.skipped[s], at + ": skipped alike");
    if (whole.skipped[s]) continue;
    check(near(split.losses[s], whole.losses[s]), at + ": loss");
    check(near(split.norms[s], whole.norms[s]), at + ": norm of the whole model");
    check(near(split.up_norms[s], whole.up_norms[s]), at + ": norm of a parameter in parts");
  }
  const std::size_t part = split.up.size();
  for (std::size_t i = 0; i < part; ++i)
    check(near(split.up[i], whole.up[static_cast<std::size_t>(groups.model_rank) * part + i]),
          name + ": a part of a parameter");
  Values first = split.bias;
  MPI_Bcast(first.data(), width, MPI_FLOAT, 0, groups.model);
  check(std::memcmp(first.data(), split.bias.data(), width * sizeof(float)) == 0,
        name + ": what is replicated has equal bits");
}

void compare_with_whole(const Groups& groups, const Case& c, const std::string& name) {
  Outcome split;
  int ranks = 1;
  {
    zero::Runtime runtime = adopt(groups);
    ranks = runtime.size();
    split = train(runtime, groups, c);
  }
  Groups alone;
  alone.data = MPI_COMM_SELF;
  Case whole = c;
  whole.accumulation = c.accumulation * ranks;
  whole.file_directory.clear();
  zero::Runtime runtime = adopt(alone);
  compare(groups, split, train(runtime, alone, whole), name);
}

std::string failure_of(const Groups& groups, const Case& c) {
  try {
    zero::Runtime runtime = adopt(groups);
    train(runtime, groups, c);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Every rank fails; a rank that receives another's failure before its own may report only that one.
void check_refused(const Groups& groups, const Case& c, const std::string& reason,
                   const std::string& what) {
  const std::string failure = failure_of(groups, c);
  check(!failure.empty(), what);
  int told = failure.find(reason) != std::string::npos ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &told, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  check(told != 0, what + ": " + failure);
}

void refuse(const Groups& groups) {
  Case c;
  c.marks_split = false;
  check_refused(groups, c, "b0.up", "a part that is not declared so is named");
  check_refused(groups, c, ".split = true", "and what to do about it");
  c = {};
  c.equal_biases = false;
  check_refused(groups, c, "b0.bias", "a replica of other values is named");
  c = {};
  c.optimizer = "Muon";
  c.clipping = "0";
  check_refused(groups, c, "b0.up is split over the tensor group",
                "whole matrices cannot be had of parts");
}

std::uint64_t trained_digest(const Groups& groups, const std::string& directory) {
  zero::Runtime runtime = adopt(groups);
  zero::Engine engine(runtime, describe(groups, {.stage = 3}), config_of({.stage = 3}));
  engine.initialize([&](zero::ParamShard shard) { fill(groups, {}, shard); });
  Network network(groups);
  for (zero::MicroStep micro : engine.micro_steps()) {
    network.forward(engine, micro.index() * runtime.size() + runtime.rank());
    micro.loss(0);
    network.backward(engine, network.x[blocks], false);
  }
  engine.step().wait();
  engine.save_checkpoint(directory);
  return engine.digest();
}

// Saves on the grid of these groups, and resumes on data ranks alone.
void resume_elsewhere(const Groups& groups) {
  char pattern[] = "/tmp/zero-grid-XXXXXX";
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank == 0 && mkdtemp(pattern) == nullptr) std::abort();
  MPI_Bcast(pattern, sizeof pattern, MPI_CHAR, 0, MPI_COMM_WORLD);
  const std::uint64_t saved = trained_digest(groups, pattern);
  for (int size = 1; size <= ranks; size *= 2) {
    Groups whole;
    MPI_Comm_split(MPI_COMM_WORLD, rank < size ? 0 : MPI_UNDEFINED, rank, &whole.data);
    if (whole.data == MPI_COMM_NULL) continue;
    {
      zero::Runtime runtime = adopt(whole);
      zero::Engine engine(runtime, describe(whole, {.stage = 2}), config_of({.stage = 2}));
      check(engine.resume(pattern).has_value(), "a checkpoint of parts is found");
      check(engine.digest() == saved, "on " + std::to_string(size) + " x 1 ranks: the digest");
    }
    MPI_Comm_free(&whole.data);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::filesystem::remove_all(pattern);
}

// Communicators that form no grid are refused on all ranks: here the ranks of a tensor group have
// different numbers in their data groups.
void refuse_other_groups(const Groups& groups) {
  Groups twisted = groups;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % groups.model_size,
                 rank % groups.model_size == 0 ? rank : -rank, &twisted.data);
  int size = 1;
  MPI_Comm_size(twisted.data, &size);
  if (size > 1)
    check(failure_of(twisted, {}).find("form no grid of ranks") != std::string::npos,
          "communicators that are no grid");
  MPI_Comm_free(&twisted.data);
}

// A rank that waits for one that gives up gets an error, in either group.
void lose_a_rank(const Groups& groups) {
  std::string caught;
  try {
    zero::Runtime runtime = adopt(groups);
    if (runtime.is_root() && groups.model_rank == 0) throw std::runtime_error("the data ran out");
    train(runtime, groups, {});
  } catch (const zero::PeerFailed&) {
    caught = "peer";
  } catch (const std::exception& error) {
    caught = error.what();
  }
  check(caught == "peer" || caught == "the data ran out",
        "a failure reaches both groups: " + caught);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int parts = argc > 1 ? std::atoi(argv[1]) : 2;
  Groups groups;
  groups.model_rank = rank % parts;
  groups.model_size = parts;
  MPI_Comm_split(MPI_COMM_WORLD, rank % parts, rank, &groups.data);
  MPI_Comm_split(MPI_COMM_WORLD, rank / parts, rank, &groups.model);

  for (const int stage : {0, 1, 2, 3}) {
    const std::string at = "stage " + std::to_string(stage);
    Case c;
    c.stage = stage;
    compare_with_whole(groups, c, at);
    c.accumulation = 2;
    c.bad_step = 2;
    compare_with_whole(groups, c, at + " with a gradient that is not finite");
    c = {};
    c.stage = stage;
    c.optimizer = "Lamb";
    compare_with_whole(groups, c, at + " with Lamb");
    if (stage == 0) continue;
    c.optimizer = "AdamW";
    c.accumulation = 2;
    c.file_directory = std::filesystem::temp_directory_path();
    compare_with_whole(groups, c, at + " with its state in a file");
  }
  refuse(groups);
  refuse_other_groups(groups);
  resume_elsewhere(groups);
  lose_a_rank(groups);

  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_free(&groups.data);
  MPI_Comm_free(&groups.model);
  MPI_Finalize();
  if (rank == 0 && failures == 0) std::printf("all as expected\n");
  return failures == 0 ? 0 : 1;
}
