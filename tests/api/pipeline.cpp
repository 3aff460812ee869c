// A pipeline: five units on as many stages as the first argument says, with the weights of one. The
// program ends with an error if the digest is not that of one stage.
#include <zero/zero.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

constexpr int width = 40, samples = 2, layers = 3;

// Sample `number` of an endless stream.
void load(float* x, std::int64_t number) {
  for (int i = 0; i < samples * width; ++i)
    x[i] = 0.1f * static_cast<float>((number * 7 + i * 3) % 11 - 5);
}

// "in" scales a sample, layers are y = x + max(0, w x), "head" is half the mean square of g x.
void run(zero::Task task, std::int64_t number) {
  zero::Unit& unit = task.unit();
  constexpr int n = samples * width;
  if (task.is_forward()) {
    auto scope = unit.forward();
    const float* w = scope.value<float>("w");
    float given[n], *y = scope.output<float>();
    const float* x = scope.input<float>();  // null for the first unit
    if (x == nullptr) load(given, number);
    for (int i = 0; i < n; ++i)
      y[i] = x == nullptr ? given[i] * w[i % width] : x[i] + std::max(0.f, w[i % width] * x[i]);
    return;
  }
  auto scope = unit.backward();
  const float* w = scope.value<float>("w");
  float *dw = scope.grad<float>("w"), *dx = scope.input_gradient<float>();
  const float* x = scope.input<float>();
  if (unit.name() == "head") {  // fused: the loss and its backward share a scope
    double loss = 0;
    for (int i = 0; i < n; ++i) {
      const float z = w[i % width] * x[i], dz = z * task.micro_step().loss_scale() / n;
      loss += 0.5 * double{z} * z / n;
      dw[i % width] += dz * x[i];
      dx[i] = dz * w[i % width];
    }
    return task.micro_step().loss(loss);
  }
  const float* dy = scope.output_gradient<float>();
  float given[n];
  if (x == nullptr) load(given, number);
  for (int i = 0; i < n; ++i) {
    const float at = x == nullptr ? given[i] : x[i];
    const bool passes = x == nullptr || w[i % width] * at > 0;
    if (passes) dw[i % width] += dy[i] * at;
    if (dx != nullptr) dx[i] = dy[i] + (passes ? dy[i] * w[i % width] : 0);
  }
}

int main(int argc, char** argv) {
  zero::RuntimeOptions options;
  options.pipeline_stages = argc > 1 ? std::atoi(argv[1]) : 1;
  const auto body = [](zero::Runtime& runtime) {
    zero::ModelSpec model;
    model.unit("in").param("w", {width}).output({width});
    for (int i = 0; i < layers; ++i)
      model.unit("layer." + std::to_string(i)).param("w", {width}).output({width});
    model.unit("head").param("w", {width}).fused();
    zero::Config config;
    config.batch.train_micro_batch_size_per_gpu = samples;
    config.batch.gradient_accumulation_steps = 4;
    config.zero_optimization.stage = 3;
    zero::Engine engine(runtime, model, config);
    engine.initialize([](zero::ParamShard shard) {
      for (float& value : shard.values) value = 0.5f;
    });
    zero::StepResult result;
    for (int step = 0; step < 5; ++step) {
      for (zero::Task task : engine.tasks()) {
        const std::int64_t micro = step * 4 + task.micro_step().index();
        run(task, micro * runtime.size() + runtime.rank());
      }
      result = engine.step().wait();
    }
    const std::uint64_t digest = engine.digest(), expected = 0x319874b68e477ab9;
    if (runtime.is_root())
      std::printf("loss %.9f, digest 0x%016llx\n", result.loss,
                  static_cast<unsigned long long>(digest));
    if (runtime.size() == 1 && digest != expected)
      runtime.fail("the digest is not that of one stage");
  };
  return zero::run(argc, argv, body, options);
}
