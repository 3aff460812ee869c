// Whole models on a GPU, forward and backward, against the CPU's in fp64: within the limits of the
// CPU's own models of each type, and with equal bits when repeated, with activations kept and
// recomputed.
#include <map>

#include "examples/gpt/cuda/device_model.h"
#include "tests/gpt/plain_model.h"
#include "tests/gpu/trainer/support.h"
#include "tests/support/refusal.h"

namespace {

using namespace gpt;
using gpt::testing::Array;
using gpt::testing::Gpu;
using gpt::testing::PlainModel;
using gpt::testing::RandomBatch;

// How a model on the device is run. gap: elements after each parameter, a multiple of 128.
struct Way {
  Activations activations = Activations::keep;
  Products products = Products::joined;
  std::int64_t gap = 0;
};

// Like PlainModel, with parameters and gradients on the device, one after the other.
template <class T>
class DevicePlainModel {
 public:
  DevicePlainModel(const ModelConfig& config, std::int64_t batch, std::int64_t sequence,
                   const Gpu& gpu, const Way& way = {})
      : stream_(gpu.stream()),
        model_(config, batch, sequence, stream_, {way.activations, way.products, {}}),
        places_(places_of(config, way.gap)),
        values_(values_at(places_), stream_),
        gradients_(std::vector<T>(values_.read().size()), stream_) {}

  // Adds the gradients of scale * loss, and returns the loss.
  float run(const MicroBatch& batch, float scale = 1) {
    const PartNames& names = model_.names();
    Array<float> device_scale({scale}, stream_);
    Arrays embedding(*this, names.embedding_unit), head(*this, names.head_unit);
    model_.embed(batch, embedding);
    for (int layer = 0; layer < model_.layers(); ++layer)
      model_.block(layer, Arrays(*this, names.block_unit(layer)));
    const float* loss = model_.head(batch, device_scale.data(), head);
    for (int layer = model_.layers() - 1; layer >= 0; --layer) {
      Arrays block(*this, names.block_unit(layer));
      model_.block_backward(layer, block);
    }
    model_.embed_backward(batch, embedding);
    float host = 0;
    cuda::check(cudaMemcpyAsync(&host, loss, sizeof host, cudaMemcpyDefault, stream_),
                "cudaMemcpyAsync");
    cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return host;
  }

  const cuda::DeviceModel<T>& model() const { return model_; }
  std::vector<T> gradient(const std::string& name) const {
    const std::vector<T> all = gradients_.read();
    const Range& place = places_.at(name);
    return {all.begin() + place.begin, all.begin() + place.end};
  }

 private:
  class Arrays final : public ParameterGradients<T> {
   public:
    Arrays(DevicePlainModel& model, const std::string& unit) : model_(model), prefix_(unit + ".") {}
    const T* value(std::string_view name) const override { return find(model_.values_, name); }
    T* grad(std::string_view name) override { return find(model_.gradients_, name); }
    zero::GradTarget<T> target(std::string_view name) override { return {grad(name), 1}; }

   private:
    T* find(Array<T>& of, std::string_view name) const {
      const Places& places = model_.places_;
      const auto own = places.find(prefix_ + std::string(name));
      return of.data() + (own != places.end() ? own->second : places.at(std::string(name))).begin;
    }

    DevicePlainModel& model_;
    std::string prefix_;
  };

  // The range of each parameter, by its name.
  using Places = std::map<std::string, Range>;
  static Places places_of(const ModelConfig& config, std::int64_t gap) {
    Places places;
    std::int64_t at = 0;
    for (const auto& [name, shape] : gpt::testing::parameters_of(config)) {
      const std::int64_t count = gpt::testing::elements_of(shape);
      places[name] = {at, at + count};
      at += (count + 127) / 128 * 128 + gap;
    }
    return places;
  }
  static std::vector<T> values_at(const Places& places) {
    std::vector<T> all;
    for (const auto& [name, place] : places) {
      const auto values = gpt::testing::random_values<T>(name, place.end - place.begin);
      if (std::ssize(all) < place.end) all.resize(static_cast<std::size_t>(place.end));
      std::copy(values.begin(), values.end(), all.begin() + place.begin);
    }
    return all;
  }

  cudaStream_t stream_;
  cuda::DeviceModel<T> model_;
  Places places_;
  Array<T> values_, gradients_;
};

constexpr std::int64_t batch_size = 2, sequence = 21, vocabulary = 67;

// Returns the distance of all gradients, relative to their norm.
template <class T>
double distance_to_exact(const ModelConfig& config, float scale, const Way& way = {}) {
  const Gpu gpu;
  zero::ThreadPool pool(2);
  const RandomBatch batch(batch_size, sequence, vocabulary);
  PlainModel<double> exact(config, batch_size, sequence, pool);
  for (auto& [name, values] : exact.values) {
    const auto rounded =
        gpt::testing::random_values<T>(name, static_cast<std::int64_t>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = zero::to_float(rounded[i]);
  }
  DevicePlainModel<T> model(config, batch_size, sequence, gpu, way);
  const double loss = model.run(batch.view(), scale), expected = exact.run(batch.view());
  CHECK(loss == doctest::Approx(expected).epsilon(sizeof(T) == 4 ? 1e-6 : 1e-2));
  double off = 0, all = 0;
  for (const auto& [name, values] : exact.gradients) {
    const std::vector<T> gradient = model.gradient(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double d = zero::to_float(gradient[i]) / scale - values[i];
      off += d * d;
      all += values[i] * values[i];
    }
  }
  return std::sqrt(off / all);
}

ModelConfig gpt2() {
  return {"test", 2, 3, 60, vocabulary, 80};
}

ModelConfig llama() {
  ModelConfig config = load_model_config("llama-tiny", vocabulary);
  config.model_type = "qwen2";  // biases of queries, keys and values
  config.inner = 90;
  config.head_channels = 12;
  config.tied = false;
  return config;
}

// Without biases, so that products are joined: of queries, keys and values, of gate and up.
ModelConfig joined_llama() {
  ModelConfig config = llama();
  config.model_type = "llama";
  config.inner = 128;
  return config;
}

ModelConfig olmo2() {
  ModelConfig config = llama();
  config.model_type = "olmo2";
  return config;
}

// The CPU's limits, from tests/gpt/gradient_test.cpp.
TEST_CASE("gpu: gradients of a GPT-2 are as near to fp64's as the CPU's") {
  CHECK(distance_to_exact<float>(gpt2(), 1) < 3e-6);
  CHECK(distance_to_exact<zero::bf16>(gpt2(), 1) < 0.03);
  CHECK(distance_to_exact<zero::fp16>(gpt2(), 4096) < 0.004);
}

TEST_CASE("gpu: gradients of a Llama are as near to fp64's as the CPU's") {
  CHECK(distance_to_exact<float>(llama(), 1) < 3e-6);
  CHECK(distance_to_exact<zero::bf16>(llama(), 1) < 0.04);
  CHECK(distance_to_exact<zero::fp16>(llama(), 4096) < 0.004);
}

TEST_CASE("gpu: gradients of joined products are as near to fp64's as those of products apart") {
  for (const Way& way : {Way{}, Way{.gap = 128}, Way{.products = Products::apart}}) {
    CHECK(distance_to_exact<float>(joined_llama(), 1, way) < 3e-6);
    CHECK(distance_to_exact<zero::bf16>(joined_llama(), 1, way) < 0.04);
    CHECK(distance_to_exact<zero::fp16>(joined_llama(), 4096, way) < 0.004);
  }
}

TEST_CASE("gpu: gradients of an OLMo 2 are as near to fp64's as the CPU's") {
  CHECK(distance_to_exact<float>(olmo2(), 1) < 3e-6);
  CHECK(distance_to_exact<zero::bf16>(olmo2(), 1) < 0.04);
  CHECK(distance_to_exact<zero::fp16>(olmo2(), 4096) < 0.004);
}

TEST_CASE("gpu: heads that a library's attention takes have gradients as near") {
  const ModelConfig config{"test", 2, 2, 32, vocabulary, 80};
  CHECK(distance_to_exact<zero::bf16>(config, 1) < 0.03);
  CHECK(distance_to_exact<zero::fp16>(config, 4096) < 0.004);
  const Gpu gpu;
  const cuda::DeviceModel<float> exact(config, 1, sequence, gpu.stream());
  CHECK(zero::tests::contains(exact.attention(), "our own kernels"));
}

TEST_CASE("gpu: heads that are too wide are refused by their width") {
  const Gpu gpu;
  const std::string said = zero::tests::refusal<zero::ConfigError>([&] {
    cuda::DeviceModel<float>({"wide", 1, 1, 160, vocabulary, 80}, 1, sequence, gpu.stream());
  });
  CHECK(zero::tests::contains(said, "heads of 160 channels"));
}

template <class T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](T x, T y) { return zero::to_float(x) == zero::to_float(y); });
}

// Compares the gradients of two runs by their names.
template <class T>
void check_equal(const ModelConfig& config, DevicePlainModel<T>& first,
                 DevicePlainModel<T>& second) {
  const RandomBatch batch(batch_size, sequence, vocabulary);
  const float loss = first.run(batch.view());
  CHECK(second.run(batch.view()) == loss);
  for (const auto& [name, shape] : gpt::testing::parameters_of(config)) {
    CAPTURE(name);
    CHECK(equal_bits(first.gradient(name), second.gradient(name)));
  }
}

template <class T>
void check_repeats(const ModelConfig& config) {
  const Gpu gpu;
  DevicePlainModel<T> first(config, batch_size, sequence, gpu),
      second(config, batch_size, sequence, gpu, {.activations = Activations::recompute});
  CHECK(second.model().bytes() < first.model().bytes());
  check_equal(config, first, second);
}

TEST_CASE_TEMPLATE("gpu: equal bits with activations kept and recomputed", T, float, zero::bf16) {
  check_repeats<T>(gpt2());
  check_repeats<T>(llama());
  check_repeats<T>(joined_llama());
  check_repeats<T>(olmo2());
}

TEST_CASE_TEMPLATE("gpu: joined products are bitwise identical if weights are not adjacent", T,
                   float, zero::bf16) {
  const Gpu gpu;
  const ModelConfig config = joined_llama();
  DevicePlainModel<T> beside(config, batch_size, sequence, gpu),
      with_gaps(config, batch_size, sequence, gpu, {.gap = 128});
  const std::int64_t bytes = beside.model().bytes(), of_copy = with_gaps.model().bytes();
  CHECK(bytes == of_copy);
  check_equal(config, beside, with_gaps);
  CHECK(beside.model().bytes() == bytes);
  CHECK(with_gaps.model().bytes() > of_copy);
}

}  // namespace
