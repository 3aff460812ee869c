// A two-layer perceptron that learns a linear map. Usage: mlp CONFIG [THREADS]; with THREADS, that
// many ranks run as threads of this process. Fails unless the loss falls.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <zero/testing.h>
#include <zero/zero.h>

using std::int64_t;
constexpr int64_t in = 32, hidden = 64, out = 8;

// y[m,n] = a[m,k] w[n,k]^T
static void gemm_nt(const float* a, const float* w, float* y, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * w[j * k + l];
      y[i * n + j] = sum;
    }
}

// y[m,k] = a[m,n] w[n,k]
static void gemm_nn(const float* a, const float* w, float* y, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l) {
      float sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += a[i * n + j] * w[j * k + l];
      y[i * k + l] = sum;
    }
}

// y[n,k] = a[m,n]^T b[m,k] + beta y
static void gemm_tn(const float* a, const float* b, float* y, int64_t m, int64_t n, int64_t k,
                    float beta) {
  for (int64_t j = 0; j < n; ++j)
    for (int64_t l = 0; l < k; ++l) {
      float sum = 0;
      for (int64_t i = 0; i < m; ++i) sum += a[i * n + j] * b[i * k + l];
      y[j * k + l] = beta == 0 ? sum : beta * y[j * k + l] + sum;
    }
}

static void add_columns(const float* a, float* y, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m * n; ++i) y[i % n] += a[i];
}

static void add_bias(float* y, const float* bias, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m * n; ++i) y[i] += bias[i % n];
}

static void next_batch(int rank, int64_t step, int micro, std::vector<float>& x,
                       std::vector<float>& target) {
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(float(i * 12.9898 + double(rank) * 3.7 + double(step) * 78.233 + micro * 1.3));
  const int64_t rows = int64_t(x.size()) / in;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < out; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < in; ++l)
        sum += x[std::size_t(i * in + l)] * std::cos(float(j * in + l));
      target[std::size_t(i * out + j)] = sum / std::sqrt(float(in));
    }
}

static void train(zero::Runtime& runtime, const std::string& config) {
  zero::ModelSpec model;
  model.unit("fc1").param("weight", {hidden, in}).param("bias", {hidden}, {.decay = false});
  model.unit("fc2").param("weight", {out, hidden}).param("bias", {out}, {.decay = false});
  zero::Engine engine(runtime, model, zero::load_config(config));
  engine.initialize([](zero::ParamShard s) {
    const float scale = s.shape.size() > 1 ? 1.f / std::sqrt(float(s.shape[1])) : 0.f;
    for (std::size_t i = 0; i < s.values.size(); ++i)
      s.values[i] = scale * std::sin(float(s.begin + int64_t(i)));
  });
  const int64_t b = engine.batch().micro;
  const auto floats = [&](int64_t width) { return std::vector<float>(std::size_t(b * width)); };
  auto x = floats(in), h = floats(hidden), y = floats(out), target = floats(out), dy = floats(out),
       dh = floats(hidden);
  zero::Unit& fc1 = engine.unit("fc1");
  zero::Unit& fc2 = engine.unit("fc2");
  double first = 0, last = 0;
  while (engine.step_count() < 100) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      next_batch(runtime.rank(), engine.step_count(), micro.index(), x, target);
      {
        auto s = fc1.forward();
        gemm_nt(x.data(), s.value<float>("weight"), h.data(), b, hidden, in);
        add_bias(h.data(), s.value<float>("bias"), b, hidden);
        for (float& v : h) v = std::tanh(v);
      }
      {
        auto s = fc2.forward();
        gemm_nt(h.data(), s.value<float>("weight"), y.data(), b, out, hidden);
        add_bias(y.data(), s.value<float>("bias"), b, out);
      }
      double loss = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        const float e = y[i] - target[i];
        loss += double(e) * e / double(y.size());
        dy[i] = 2 * e / float(y.size()) * micro.loss_scale();
      }
      micro.loss(loss);
      {
        auto s = fc2.backward();
        gemm_nn(dy.data(), s.value<float>("weight"), dh.data(), b, out, hidden);
        auto dw = s.grad_target<float>("weight");
        gemm_tn(dy.data(), h.data(), dw.data, b, out, hidden, dw.beta);
        add_columns(dy.data(), s.grad<float>("bias"), b, out);
      }
      for (std::size_t i = 0; i < dh.size(); ++i) dh[i] *= 1 - h[i] * h[i];
      {
        auto s = fc1.backward();
        auto dw = s.grad_target<float>("weight");
        gemm_tn(dh.data(), x.data(), dw.data, b, hidden, in, dw.beta);
        add_columns(dh.data(), s.grad<float>("bias"), b, hidden);
      }
    }
    const zero::StepResult r = engine.step().wait();
    if (engine.step_count() == 1) first = r.loss;
    last = r.loss;
  }
  if (runtime.is_root())
    std::printf("%d ranks: loss %.3g at the first step, %.3g at the last\n", runtime.size(), first,
                last);
  if (!(last < first / 2)) runtime.fail("the loss did not fall");
}

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: mlp CONFIG [THREADS]\n");
    return 10;
  }
  const std::string config = argv[1];
  const auto body = [&](zero::Runtime& runtime) { train(runtime, config); };
  if (argc < 3) return zero::run(argc, argv, body);
  zero::testing::run_ranks(std::atoi(argv[2]), body);
  return 0;
}
