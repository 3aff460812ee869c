// A user's program with the features of real models: a tied head, frozen parameters, an optimizer
// group, recomputation, accumulation, evaluation, sampling on the root, reading and changing
// gradients, saving and loading. The kernels are small; the calls are those of a large program.
#include <zero/zero.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

using std::int64_t;
using zero::to_float;

constexpr int64_t vocabulary = 24, channels = 16, layers = 3, micro_steps = 2;

zero::ModelSpec describe() {
  zero::ModelSpec model;
  model.unit("embed").param("wte", {vocabulary, channels});
  for (int64_t l = 0; l < layers; ++l)
    model.unit("block." + std::to_string(l))
        .param("gain", {channels}, {.decay = false})
        .param("weight", {channels, channels})
        .param("adapter", {channels}, {.group = "adapters"})
        .param("frozen", {channels}, {.trainable = false});
  model.unit("head").param("gain", {channels}, {.decay = false}).uses("embed.wte");
  return model;
}

template <class T>
void add(T& to, float x) {
  to = zero::from_float<T>(to_float(to) + x);
}

struct Sample {
  int64_t token, target;
};
Sample sample(int64_t index) {
  const int64_t token = index * 5 % vocabulary;
  return {token, (token + 1) % vocabulary};
}

// The inputs of each block, and the gradient that flows back.
struct Activations {
  std::vector<std::vector<float>> x = std::vector(layers + 1, std::vector<float>(channels));
  std::vector<float> gradient = std::vector<float>(channels);
  int64_t bytes() const { return (layers + 2) * channels * int64_t(sizeof(float)); }
};

// A block adds gain tanh(weight x) + adapter x + frozen in channel j.
template <class T>
struct Block {
  const T *gain, *weight, *adapter, *frozen;
  explicit Block(const zero::Scope& s)
      : gain(s.value<T>("gain")),
        weight(s.value<T>("weight")),
        adapter(s.value<T>("adapter")),
        frozen(s.value<T>("frozen")) {}
  float bent(const std::vector<float>& x, int64_t j) const {
    float sum = 0;
    for (int64_t i = 0; i < channels; ++i) sum += to_float(weight[j * channels + i]) * x[i];
    return std::tanh(sum);
  }
  void forward(const std::vector<float>& x, std::vector<float>& y) const {
    for (int64_t j = 0; j < channels; ++j)
      y[j] =
          x[j] + to_float(gain[j]) * bent(x, j) + to_float(adapter[j]) * x[j] + to_float(frozen[j]);
  }
};

template <class T>
void block_backward(zero::BackwardScope& s, const std::vector<float>& x, std::vector<float>& dy) {
  const Block<T> block(s);
  T *dgain = s.grad<T>("gain"), *dadapter = s.grad<T>("adapter");
  const zero::GradTarget<T> dweight = s.grad_target<T>("weight");
  std::vector<float> dx(channels);
  for (int64_t j = 0; j < channels; ++j) {
    const float t = block.bent(x, j);  // recomputed: nothing is gathered again
    const float dz = dy[j] * to_float(block.gain[j]) * (1 - t * t);
    add(dgain[j], dy[j] * t);
    add(dadapter[j], dy[j] * x[j]);
    dx[j] += dy[j] * (1 + to_float(block.adapter[j]));
    for (int64_t i = 0; i < channels; ++i) {
      T& dw = dweight.data[j * channels + i];
      dw = zero::from_float<T>((dweight.beta == 0 ? 0.f : to_float(dw)) + dz * x[i]);
      dx[i] += dz * to_float(block.weight[j * channels + i]);
    }
  }
  dy = dx;
}

// Returns the probabilities of the next token.
template <class T>
std::vector<float> predict(const zero::Scope& s, const std::vector<float>& x) {
  const T *gain = s.value<T>("gain"), *wte = s.value<T>("embed.wte");
  std::vector<float> p(vocabulary);
  float total = 0;
  for (int64_t v = 0; v < vocabulary; ++v) {
    float logit = 0;
    for (int64_t c = 0; c < channels; ++c)
      logit += to_float(gain[c]) * x[c] * to_float(wte[v * channels + c]);
    total += p[v] = std::exp(logit);
  }
  for (float& value : p) value /= total;
  return p;
}

template <class T>
std::vector<float> forward(zero::Engine& engine, int64_t token, Activations& a) {
  auto units = engine.units();
  {
    auto s = units.front().forward();
    for (int64_t c = 0; c < channels; ++c)
      a.x[0][c] = to_float(s.value<T>("wte")[token * channels + c]);
  }
  for (zero::Unit& unit : units.subspan(1, layers)) {
    auto s = unit.forward();
    Block<T>(s).forward(a.x[unit.index() - 1], a.x[unit.index()]);
  }
  auto s = units.back().forward();
  return predict<T>(s, a.x[layers]);
}

template <class T>
void backward(zero::Engine& engine, const Sample& b, std::vector<float> p, Activations& a,
              float scale) {
  std::vector<float>& dx = a.gradient;
  dx.assign(channels, 0);
  p[b.target] -= 1;
  for (zero::Unit* unit : engine.backward_units()) {
    auto s = unit->backward();
    if (unit->name() == "head") {
      const T *gain = s.value<T>("gain"), *wte = s.value<T>("embed.wte");
      T *dgain = s.grad<T>("gain"), *dwte = s.grad<T>("embed.wte");
      for (int64_t v = 0; v < vocabulary; ++v)
        for (int64_t c = 0; c < channels; ++c) {
          const float d = p[v] * scale, w = to_float(wte[v * channels + c]), x = a.x[layers][c];
          add(dgain[c], d * w * x);
          add(dwte[v * channels + c], d * to_float(gain[c]) * x);
          dx[c] += d * to_float(gain[c]) * w;
        }
    } else if (unit->name() == "embed") {
      T* dwte = s.grad<T>("wte");
      for (int64_t c = 0; c < channels; ++c) add(dwte[b.token * channels + c], dx[c]);
    } else {
      block_backward<T>(s, a.x[unit->index() - 1], dx);
    }
  }
}

template <class T>
double mean_loss(zero::Runtime& runtime, zero::Engine& engine, Activations& a) {
  double loss = 0;
  int count = 0;
  // Ranks with fewer samples still take part in the gathers of the others.
  zero::Evaluation evaluation = engine.evaluate();
  while (evaluation.next(count < 4 + runtime.rank())) {
    const Sample b = sample(runtime.rank() + count++ * runtime.size());
    loss -= std::log(forward<T>(engine, b.token, a)[b.target]);
  }
  return runtime.sum(loss) / runtime.sum(count);
}

template <class T>
void train(zero::Runtime& runtime, zero::Engine& engine) {
  Activations a;
  runtime.track("activations", a.bytes());
  engine.initialize([](zero::ParamShard s) {
    for (std::size_t i = 0; i < s.values.size(); ++i)
      s.values[i] = (s.name.ends_with("gain") ? 1.f : 0.f) +
                    0.3f * std::sin(float(s.begin + int64_t(i)) * 1.7f + float(s.name.size()));
  });
  const double before = mean_loss<T>(runtime, engine, a);
  while (engine.step_count() < 60) {
    const int64_t first = engine.step_count() * engine.batch().global;
    for (zero::MicroStep micro : engine.micro_steps()) {
      const Sample b = sample(first + micro.index() * runtime.size() + runtime.rank());
      const std::vector<float> p = forward<T>(engine, b.token, a);
      backward<T>(engine, b, p, a, micro.loss_scale());
      micro.loss(-std::log(p[b.target]));
    }
    zero::StepOptions options;
    if (engine.step_count() % 10 == 0)
      options.inspect = [](zero::Gradients& gradients) {
        gradients.edit([](zero::ParamShard s) {
          if (!s.name.ends_with("adapter")) return;
          for (float& value : s.values) value *= 0.5f;
        });
        const bool usual = gradients.norm("block.0.weight") <= gradients.norm();
        return usual ? zero::Decision::apply : zero::Decision::skip;
      };
    if (engine.step(options).wait().stop_requested) return;
  }
  const double after = mean_loss<T>(runtime, engine, a);
  {
    auto full = engine.materialize(0);
    if (runtime.is_root()) {  // the other ranks do not take part
      const std::vector<float> p = forward<T>(engine, 3, a);
      std::printf("loss %.4f, then %.4f; P(4 | 3) = %.3f\n", before, after, p[4]);
    }
  }
  if (!(after < 0.7 * before)) runtime.fail("the loss did not fall");
}

// Saves, loads into another engine, and compares one tensor.
void save_and_load(zero::Runtime& runtime, zero::Engine& engine, const zero::Config& config) {
  const std::string folder = "transformer_of_" + std::to_string(runtime.size());
  engine.export_model(folder);
  zero::Engine other(runtime, describe(), config);
  other.load_weights(folder + "/model.safetensors");
  std::vector<float> mine(vocabulary * channels), loaded(mine.size());
  engine.read("embed.wte", "value", mine);
  other.read("embed.wte", "value", loaded);
  if (mine != loaded) runtime.fail("the loaded weights differ");
  runtime.sum(0);  // all ranks have read the file
  if (runtime.is_root()) std::filesystem::remove_all(folder);
}

int main(int argc, char** argv) {
  return zero::run(argc, argv, [](zero::Runtime& runtime) {
    for (const char* bf16 : {"false", "true"}) {
      const zero::Config config =
          zero::load_config("", {{"zero_optimization.stage", "3"},
                                 {"train_micro_batch_size_per_gpu", "1"},
                                 {"gradient_accumulation_steps", std::to_string(micro_steps)},
                                 {"optimizer.params.lr", "0.01"},
                                 {"bf16.enabled", bf16},
                                 {"zero_core.param_groups.adapters.lr_scale", "2"}});
      zero::Engine engine(runtime, describe(), config);
      engine.compute_dtype() == zero::DType::fp32 ? train<float>(runtime, engine)
                                                  : train<zero::bf16>(runtime, engine);
      save_and_load(runtime, engine, config);
    }
  });
}
