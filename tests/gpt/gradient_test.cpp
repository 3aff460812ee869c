// The model's gradients against finite differences in fp64, tensor by tensor, and the 16-bit model
// against the fp32 one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/gpt/plain_model.h"

namespace {

using gpt::ModelConfig;
using gpt::testing::PlainModel;
using gpt::testing::RandomBatch;

struct Case {
  ModelConfig config;
  std::int64_t batch, sequence;
  std::size_t elements;  // checked per tensor
};

double norm_of(const std::map<std::string, std::vector<double>>& tensors) {
  double squares = 0;
  for (const auto& [name, values] : tensors)
    for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// Returns the central difference of the loss by one element.
double difference(PlainModel<double>& model, const RandomBatch& batch, double& element) {
  constexpr double step = 1e-5;
  const double kept = element;
  element = kept + step;
  const double above = model.run(batch.view());
  element = kept - step;
  const double below = model.run(batch.view());
  element = kept;
  return (above - below) / (2 * step);
}

void check_gradients(const Case& c) {
  zero::ThreadPool pool(2);
  PlainModel<double> model(c.config, c.batch, c.sequence, pool);
  const RandomBatch batch(c.batch, c.sequence, c.config.vocabulary);
  model.run(batch.view());
  const auto gradients = model.gradients;
  const double norm = norm_of(gradients);
  for (auto& [name, values] : model.values) {
    const std::size_t stride = std::max<std::size_t>(1, values.size() / c.elements);
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); i += stride)
      worst =
          std::max(worst, std::abs(difference(model, batch, values[i]) - gradients.at(name)[i]));
    INFO(name, ": worst difference ", worst, ", gradient norm ", norm);
    CHECK(worst <= 1e-8 * norm);
  }
}

// Three query heads per key head, heads whose width is not channels / heads, all biases.
ModelConfig llama(std::int64_t sequence, bool tied) {
  ModelConfig config{"llama", 2, 6, 7, 11, sequence, 1e-5, 0.02, "llama", 2, 4, 10};
  config.attention_bias = config.mlp_bias = !tied;
  config.tied = tied;
  config.rope = {.type = "yarn", .theta = 50, .factor = 4, .original_context = 6};
  return config;
}

TEST_CASE("every element of every tensor of a Llama: gradients equal finite differences") {
  check_gradients({llama(5, false), 2, 5, 1u << 20});
  check_gradients({llama(5, true), 2, 5, 1u << 20});
}

TEST_CASE("every element of every tensor of an OLMo 2: gradients equal finite differences") {
  ModelConfig config = llama(5, false);
  config.model_type = "olmo2";
  check_gradients({config, 2, 5, 1u << 20});
}

TEST_CASE("a Llama with more positions than one attention tile: gradients as finite differences") {
  check_gradients({llama(133, false), 2, 133, 9});
}

TEST_CASE("every element of every tensor: gradients equal finite differences") {
  check_gradients({{"test", 2, 2, 8, 11, 7}, 2, 5, 1u << 20});
}

TEST_CASE("more positions than one attention tile: gradients equal finite differences") {
  check_gradients({{"test", 2, 1, 6, 13, 140}, 1, 133, 9});
}

TEST_CASE("gradients of several micro batches add up, and scale") {
  zero::ThreadPool pool(1);
  const ModelConfig config{"test", 1, 2, 8, 11, 7};
  PlainModel<double> model(config, 2, 7, pool);
  const RandomBatch first(2, 7, 11, 1), second(2, 7, 11, 2);
  model.run(first.view());
  const auto once = model.gradients;
  model.zero_gradients();
  model.run(second.view(), 4);
  const auto other = model.gradients;
  model.run(first.view());
  for (const auto& [name, values] : model.gradients)
    for (std::size_t i = 0; i < values.size(); ++i)
      CHECK(values[i] == doctest::Approx(once.at(name)[i] + other.at(name)[i]).epsilon(1e-12));
}

// Returns the difference of two gradients of the same model, relative to their norm.
template <class T>
double distance(PlainModel<T>& model, PlainModel<double>& reference, const RandomBatch& batch,
                float scale = 1) {
  for (auto& [name, values] : reference.values)
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = zero::to_float(model.values.at(name)[i]);
  const double loss = model.run(batch.view(), scale), expected = reference.run(batch.view());
  CHECK(loss == doctest::Approx(expected).epsilon(sizeof(T) == 4 ? 1e-6 : 1e-2));
  double squares = 0;
  for (const auto& [name, values] : reference.gradients)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double off = zero::to_float(model.gradients.at(name)[i]) / scale - values[i];
      squares += off * off;
    }
  return std::sqrt(squares) / norm_of(reference.gradients);
}

void check_precisions(const ModelConfig& config, double bf16_limit) {
  zero::ThreadPool pool(2);
  PlainModel<double> reference(config, 2, 150, pool);
  const RandomBatch batch(2, 150, 67);
  PlainModel<float> single(config, 2, 150, pool);
  CHECK(distance(single, reference, batch) < 3e-6);
  reference.zero_gradients();
  PlainModel<zero::bf16> half(config, 2, 150, pool);
  CHECK(distance(half, reference, batch) < bf16_limit);
  reference.zero_gradients();
  PlainModel<zero::fp16> scaled(config, 2, 150, pool);
  CHECK(distance(scaled, reference, batch, 4096) < 0.004);
}

TEST_CASE("fp32, bf16 and fp16 gradients are as near to fp64's as their roundings allow") {
  check_precisions({"test", 3, 4, 64, 67, 160}, 0.03);
}

TEST_CASE("fp32, bf16 and fp16 gradients of a Llama are as near to fp64's") {
  ModelConfig config = gpt::load_model_config("llama-tiny", 67);
  config.layers = 3;
  check_precisions(config, 0.04);  // PyTorch is 0.044 away in bf16
}

template <class T>
void check_repeats(const ModelConfig& config, int threads) {
  zero::ThreadPool pool(threads);
  const RandomBatch batch(2, 140, 61);
  PlainModel<T> first(config, 2, 140, pool);
  PlainModel<T> second(config, 2, 140, pool, gpt::Activations::recompute);
  CHECK(second.model().bytes() < first.model().bytes());
  const double loss = first.run(batch.view());
  CHECK(second.run(batch.view()) == loss);
  for (const auto& [name, values] : first.gradients)
    CHECK(std::equal(values.begin(), values.end(), second.gradients.at(name).begin(),
                     [](T a, T b) { return zero::to_float(a) == zero::to_float(b); }));
}

TEST_CASE("a second run gives equal bits, with activations kept and recomputed") {
  ModelConfig llama = gpt::load_model_config("llama-tiny", 61);
  llama.layers = 3;
  ModelConfig olmo = llama;
  olmo.model_type = "olmo2";
  for (const ModelConfig& config : {ModelConfig{"test", 3, 3, 48, 61, 140}, llama, olmo})
    for (const int threads : {1, 2, 3}) {
      check_repeats<float>(config, threads);
      check_repeats<zero::bf16>(config, threads);
      check_repeats<zero::fp16>(config, threads);
    }
}

TEST_CASE("the loss head gives the same with one chunk of rows and with several") {
  zero::ThreadPool pool(2);
  gpt::Matmul matmul(pool);
  const gpt::Dims dims{2, 65, 8, 2, 37};
  const auto c = static_cast<std::size_t>(dims.channels),
             v = static_cast<std::size_t>(dims.vocabulary);
  const RandomBatch batch(2, 65, 37);
  const auto in = gpt::testing::random_values<double>("in", dims.rows() * dims.channels);
  const auto embedding =
      gpt::testing::random_values<double>("embedding", dims.vocabulary * dims.channels);
  const auto weight = gpt::testing::random_values<double>("ln_f.weight", dims.channels);
  struct Result {
    double loss;
    std::vector<double> dx, dweight, dbias, dembedding;
  };
  const auto run = [&](std::int64_t logit_bytes) {
    Result r{0, std::vector<double>(in.size()), std::vector<double>(c), std::vector<double>(c),
             std::vector<double>(v * c, 7.0)};
    gpt::LossHead<double> head(dims, matmul, logit_bytes);
    r.loss = head.run({in.data(), batch.targets.data(), 1},
                      {{weight.data(), weight.data()}, embedding.data()},
                      {{r.dweight.data(), r.dbias.data()}, {r.dembedding.data(), 0}}, r.dx.data());
    return r;
  };
  const Result whole = run(1 << 20), chunked = run(1);
  CHECK(whole.loss == doctest::Approx(chunked.loss).epsilon(1e-12));
  for (std::size_t i = 0; i < whole.dx.size(); ++i)
    CHECK(whole.dx[i] == doctest::Approx(chunked.dx[i]).epsilon(1e-10));
  for (std::size_t i = 0; i < whole.dembedding.size(); ++i)
    CHECK(whole.dembedding[i] == doctest::Approx(chunked.dembedding[i]).epsilon(1e-10));
}

TEST_CASE("rows of logits begin at cache lines, whatever the vocabulary") {
  zero::ThreadPool pool(1);
  gpt::Matmul matmul(pool);
  const auto bytes = [&](std::int64_t vocabulary) {
    return gpt::LossHead<float>({2, 65, 8, 2, vocabulary}, matmul).bytes();
  };
  CHECK(bytes(37) == bytes(64));
  CHECK(bytes(64) < bytes(65));
}

}  // namespace
