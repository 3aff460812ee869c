// A small complete program: a two-layer perceptron that learns a fixed map.
// Run: mpirun -n 2 mlp ds_config.json
#include <zero/zero.h>

#include <cmath>
#include <cstdio>
#include <vector>

using std::int64_t;

constexpr int64_t in = 32, hidden = 64, out = 8;

// y (m x n) = a (m x k) w^T, with w (n x k).
void gemm(const float* a, const float* w, float* y, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * w[j * k + l];
      y[i * n + j] = sum;
    }
}

// y (m x n) = a (m x k) w, with w (k x n).
void gemm_nn(const float* a, const float* w, float* y, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * w[l * n + j];
      y[i * n + j] = sum;
    }
}

// y (m x n) = a^T b + beta y, with a (k x m) and b (k x n).
void gemm_tn(const float* a, const float* b, zero::GradTarget<float> y, int64_t m, int64_t n,
             int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = y.beta == 0 ? 0.f : y.data[i * n + j];
      for (int64_t l = 0; l < k; ++l) sum += a[l * m + i] * b[l * n + j];
      y.data[i * n + j] = sum;
    }
}

// y += the column sums of a (m x n).
void column_sum(const float* a, float* y, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) y[j] += a[i * n + j];
}

// Sample i of an endless stream: the target is a fixed linear map of the input.
void next_batch(int64_t first, std::vector<float>& x, std::vector<float>& target) {
  const int64_t batch = static_cast<int64_t>(x.size()) / in;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < in; ++i) x[b * in + i] = std::sin(float((first + b) * (i + 1)));
    for (int64_t o = 0; o < out; ++o) target[b * out + o] = x[b * in + o] - x[b * in + o + 1];
  }
}

void train(zero::Runtime& runtime, const char* config) {
  zero::ModelSpec model;
  model.unit("fc1")
      .param("weight", {hidden, in})
      .param("bias", {hidden}, {.decay = false})
      .keep("h", {hidden});  // of a sample, from forward to backward
  model.unit("fc2").param("weight", {out, hidden}).param("bias", {out}, {.decay = false});
  zero::Engine engine(runtime, model, zero::load_config(config));
  engine.initialize([](zero::ParamShard s) {
    const float scale = s.shape.size() > 1 ? 1.f / std::sqrt(float(s.shape[1])) : 0.f;
    for (std::size_t i = 0; i < s.values.size(); ++i)
      s.values[i] = scale * std::sin(float(s.begin + int64_t(i)));
  });
  const int64_t b = engine.batch().micro;
  std::vector<float> x(b * in), y(b * out), target(b * out), dy(b * out), dh(b * hidden);
  zero::Unit& fc1 = engine.unit("fc1");
  zero::Unit& fc2 = engine.unit("fc2");
  while (engine.step_count() < 100) {
    const int64_t first = engine.step_count() * engine.batch().global;
    for (zero::MicroStep micro : engine.micro_steps()) {
      next_batch(first + micro.number() * b, x, target);
      float* h = nullptr;
      {
        auto s = fc1.forward();
        h = s.kept<float>("h");
        gemm(x.data(), s.value<float>("weight"), h, b, hidden, in);
        const float* bias = s.value<float>("bias");
        for (int64_t i = 0; i < b * hidden; ++i) h[i] = std::tanh(h[i] + bias[i % hidden]);
      }
      {
        auto s = fc2.forward();
        gemm(h, s.value<float>("weight"), y.data(), b, out, hidden);
        const float* bias = s.value<float>("bias");
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % out];
      }
      double loss = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        const float e = y[i] - target[i];
        loss += e * e / double(y.size());
        dy[i] = 2 * e / float(y.size()) * micro.loss_scale();
      }
      micro.loss(loss);
      {
        auto s = fc2.backward();
        gemm_nn(dy.data(), s.value<float>("weight"), dh.data(), b, hidden, out);
        gemm_tn(dy.data(), h, s.grad_target<float>("weight"), out, hidden, b);
        column_sum(dy.data(), s.grad<float>("bias"), b, out);
      }
      {
        auto s = fc1.backward();
        for (std::size_t i = 0; i < dh.size(); ++i) dh[i] *= 1 - h[i] * h[i];
        gemm_tn(dh.data(), x.data(), s.grad_target<float>("weight"), hidden, in, b);
        column_sum(dh.data(), s.grad<float>("bias"), b, hidden);
      }
    }
    const zero::StepResult r = engine.step().wait();
    if (runtime.is_root() && r.step % 10 == 0)
      std::printf("%lld loss %.5f norm %.4f lr %.2e\n", (long long)r.step, r.loss, r.grad_norm,
                  r.learning_rate);
  }
  engine.export_model("mlp_model");
}

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    if (argc != 2) throw zero::ConfigError("usage: mlp ds_config.json");
    train(runtime, argv[1]);
  });
}
