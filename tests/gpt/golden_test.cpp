// GPT-2, Llama, Qwen2 and OLMo 2 through the engine against PyTorch in fp32 (tests/data, made by
// make_goldens.py): the losses of 20 AdamW steps, gradients of two of them, and the final weights;
// on one rank and on three, sharded or not. Also rotary frequencies against transformers'.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/gpt/model/model_spec.h"
#include "examples/gpt/train/training_step.h"
#include "tests/gpt/plain_model.h"
#include "tests/support/temporary_directory.h"
#include "zero/checkpoint/safetensors_file.h"
#include "zero/testing.h"

namespace {

using Tensors = std::map<std::string, std::vector<float>>;

const std::string folder = GPT_TEST_DATA;

Tensors read_tensors(const std::string& file) {
  const zero::checkpoint::SafetensorsReader reader(folder + "/" + file);
  Tensors tensors;
  for (const auto& entry : reader.tensors()) {
    tensors[entry.name].resize(static_cast<std::size_t>(entry.elements()));
    reader.read(entry, 0, tensors[entry.name]);
  }
  return tensors;
}

nlohmann::json read_json(const std::string& file) {
  return nlohmann::json::parse(std::ifstream(folder + "/" + file));
}

gpt::ModelConfig config_of(const nlohmann::json& goldens) {
  if (!goldens.contains("config"))
    return {"golden",          goldens["n_layer"],    goldens["n_head"],
            goldens["n_embd"], goldens["vocab_size"], goldens["n_positions"]};
  const zero::tests::TemporaryDirectory directory;
  return gpt::load_model_config(directory.file("config.json", goldens["config"].dump()), 0);
}

struct Goldens {
  explicit Goldens(const std::string& model)
      : name(model), json(read_json(model + "_goldens.json")), config(config_of(json)) {
    sequence = json.value("sequence", config.context);
    losses = json["losses"].get<std::vector<double>>();
    bf16_losses = json.value("bf16_losses", std::vector<double>());
    norms = json["gradient_norms"].get<std::vector<double>>();
  }

  // Returns rows [first, first + count) of the batch of a step.
  gpt::testing::RandomBatch batch(std::size_t step, std::int64_t first, std::int64_t count) const {
    const std::vector<std::int32_t> text = json["tokens"][step];
    gpt::testing::RandomBatch batch(0, 0, 1);
    for (std::int64_t row = first; row < first + count; ++row) {
      const auto begin = text.begin() + row * (sequence + 1);
      batch.tokens.insert(batch.tokens.end(), begin, begin + sequence);
      batch.targets.insert(batch.targets.end(), begin + 1, begin + sequence + 1);
    }
    return batch;
  }

  zero::Config engine_config(int stage, int ranks, bool bf16) const {
    zero::Config c;
    c.bf16_enabled = bf16;
    c.zero_optimization.stage = stage;
    c.batch.train_micro_batch_size_per_gpu = json["batch"].get<std::int64_t>() / ranks;
    c.gradient_clipping = json["gradient_clipping"];
    c.optimizer.type = "AdamW";
    c.optimizer.learning_rate = json["optimizer"]["lr"];
    c.optimizer.weight_decay = json["optimizer"]["weight_decay"];
    c.optimizer.beta1 = json["optimizer"]["betas"][0];
    c.optimizer.beta2 = json["optimizer"]["betas"][1];
    c.optimizer.epsilon = json["optimizer"]["eps"];
    return c;
  }

  std::string name;
  nlohmann::json json;
  gpt::ModelConfig config;
  std::int64_t sequence = 0;
  std::vector<double> losses, bf16_losses, norms;
};

double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

std::vector<float> difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> result(a.size());
  std::transform(a.begin(), a.end(), b.begin(), result.begin(), std::minus<>());
  return result;
}

void check_gradients(const Tensors& gradients, const std::string& model, std::size_t step) {
  const Tensors expected =
      read_tensors(model + "_gradients_" + std::to_string(step) + ".safetensors");
  double squares = 0;
  for (const auto& [name, values] : expected) squares += std::pow(norm_of(values), 2);
  REQUIRE(gradients.size() == expected.size());
  for (const auto& [name, values] : expected) {
    INFO("step ", step, " ", name);
    CHECK(norm_of(difference(gradients.at(name), values)) <= 1e-5 * std::sqrt(squares));
  }
}

// Removes the middle third of c_attn.bias, the keys': since their gradient is zero in real
// arithmetic, Adam turns its rounding errors into steps of full size.
void drop_key_biases(std::vector<float>& values) {
  const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
  values.erase(values.begin() + third, values.begin() + 2 * third);
}

void check_weights(const Tensors& end, const std::string& model) {
  const Tensors start = read_tensors(model + "_start.safetensors"),
                expected = read_tensors(model + "_end.safetensors");
  for (const auto& [name, values] : expected) {
    auto change = difference(values, start.at(name)), error = difference(end.at(name), values);
    if (name.ends_with("attn.c_attn.bias")) {
      drop_key_biases(change);
      drop_key_biases(error);
    }
    INFO(name);
    CHECK(norm_of(error) <= 1e-3 * norm_of(change));
  }
}

// Data shared by the ranks, which are threads of this process.
struct Shared {
  std::mutex mutex;
  Tensors gradients;
};

// Trains on every rank; the root checks.
template <class T>
class Run {
 public:
  Run(const Goldens& goldens, zero::Runtime& runtime, int stage, Shared& shared)
      : goldens_(goldens),
        runtime_(runtime),
        shared_(shared),
        config_(goldens.engine_config(stage, runtime.size(), std::is_same_v<T, zero::bf16>)),
        engine_(runtime, gpt::describe(goldens.config), config_),
        pool_(1),
        model_(goldens.config, engine_.batch().micro, goldens.sequence, pool_),
        step_(engine_, model_) {
    engine_.load_weights(folder + "/" + goldens.name + "_start.safetensors");
  }

  void train() {
    for (std::size_t step = 1; step <= goldens_.losses.size(); ++step) {
      const bool keep = step == 1 || step == 10;
      const zero::StepResult result = one_step(step, keep);
      runtime_.sum(0);  // all ranks have added their gradients
      if (!runtime_.is_root()) continue;
      INFO("step ", step);
      CHECK(std::abs(result.loss - goldens_.losses[step - 1]) <= 1e-5 * goldens_.losses[step - 1]);
      CHECK(result.grad_norm == doctest::Approx(goldens_.norms[step - 1]).epsilon(1e-4));
      if (keep) check_gradients(shared_.gradients, goldens_.name, step);
    }
    const Tensors end = read_all("value");
    if (runtime_.is_root()) check_weights(end, goldens_.name);
  }

  // Trains in 16 bits: the losses must be as near to PyTorch's in fp32 as those of PyTorch's own
  // bf16.
  void train_near() {
    double distance = 0, pytorch_distance = 0;
    for (std::size_t i = 0; i < goldens_.losses.size(); ++i) {
      distance += std::abs(one_step(i + 1, false).loss - goldens_.losses[i]);
      pytorch_distance += std::abs(goldens_.bf16_losses[i] - goldens_.losses[i]);
    }
    if (runtime_.is_root()) CHECK(distance <= 1.5 * pytorch_distance);
  }

 private:
  zero::StepResult one_step(std::size_t step, bool keep_gradients) {
    const std::int64_t rows = engine_.batch().micro;
    for (zero::MicroStep micro : engine_.micro_steps()) {
      const auto batch = goldens_.batch(step - 1, runtime_.rank() * rows, rows);
      micro.loss(step_.run(batch.view(), micro.loss_scale()));
    }
    zero::StepOptions options;
    if (keep_gradients)
      options.inspect = [&](zero::Gradients& gradients) {
        gradients.edit([&](const zero::ParamShard& shard) { keep(shard); });
        return zero::Decision::apply;
      };
    return engine_.step(options).wait();
  }

  // Averaged, and not yet clipped.
  void keep(const zero::ParamShard& shard) {
    const std::lock_guard lock(shared_.mutex);
    auto& whole = shared_.gradients[std::string(shard.name)];
    whole.resize(static_cast<std::size_t>(
        gpt::testing::elements_of({shard.shape.begin(), shard.shape.end()})));
    std::copy(shard.values.begin(), shard.values.end(), whole.begin() + shard.begin);
  }

  Tensors read_all(const char* what) {
    Tensors tensors;
    for (const auto& [name, shape] : gpt::testing::parameters_of(goldens_.config)) {
      auto& values = tensors[name];
      values.resize(static_cast<std::size_t>(gpt::testing::elements_of(shape)));
      engine_.read(name, what, values);
    }
    return tensors;
  }

  const Goldens& goldens_;
  zero::Runtime& runtime_;
  Shared& shared_;
  zero::Config config_;
  zero::Engine engine_;
  zero::ThreadPool pool_;
  gpt::Model<T> model_;
  gpt::TrainingStep<gpt::Model<T>> step_;
};

void check(const std::string& model, int ranks, int stage) {
  const Goldens goldens(model);
  Shared shared;
  zero::testing::run_ranks(
      ranks, [&](zero::Runtime& runtime) { Run<float>(goldens, runtime, stage, shared).train(); });
}

TEST_CASE("training equals PyTorch's on one rank") {
  check("gpt2", 1, 0);
}
TEST_CASE("training equals PyTorch's on three ranks at stage 0") {
  check("gpt2", 3, 0);
}
TEST_CASE("training equals PyTorch's on three ranks at stage 3") {
  check("gpt2", 3, 3);
}
TEST_CASE("training of a Llama equals PyTorch's") {
  check("llama", 1, 0);
  check("llama", 3, 3);
}
TEST_CASE("training of a Qwen2 equals PyTorch's") {
  check("qwen2", 1, 0);
  check("qwen2", 3, 3);
}
TEST_CASE("training of an OLMo 2 equals PyTorch's") {
  check("olmo2", 1, 0);
  check("olmo2", 3, 3);
}

void check_bf16(const std::string& model, int ranks, int stage) {
  const Goldens goldens(model);
  Shared shared;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    Run<zero::bf16>(goldens, runtime, stage, shared).train_near();
  });
}

TEST_CASE("losses in bf16 are as near to fp32's as PyTorch's are") {
  for (const char* model : {"llama", "qwen2", "olmo2"}) {
    INFO(model);
    check_bf16(model, 1, 0);
    check_bf16(model, 3, 3);
  }
}

TEST_CASE("rotary frequencies of every kind of scaling equal transformers'") {
  const nlohmann::json goldens = read_json("rope_goldens.json");
  for (const nlohmann::json& golden : goldens["cases"]) {
    INFO(golden["rope_parameters"].dump());
    std::string problems;
    const nlohmann::json config = {{"rope_parameters", golden["rope_parameters"]}};
    gpt::ConfigReader reader(config, problems);
    const gpt::RopeConfig rope = gpt::read_rope(reader, goldens["context"]);
    CHECK(problems == "");
    const std::vector<double> found = gpt::frequencies(rope, goldens["head_channels"]),
                              expected = golden["frequencies"];
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      CHECK(std::abs(found[i] - expected[i]) <= 1e-6 * expected[i]);
    CHECK(gpt::amplitude(rope) ==
          doctest::Approx(golden["amplitude"].get<double>()).epsilon(1e-12));
  }
}

}  // namespace
