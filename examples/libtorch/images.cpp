// A convolution net with BatchNorm that learns to find the bright corner of a noisy image.
// Run: mpirun -n 2 libtorch_images --deepspeed_config ds_config.json
#include <torch/torch.h>

#include <cstdio>

#include "examples/libtorch/options.h"
#include "pytorch/module.h"

namespace nn = torch::nn;

struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride) {
    const auto convolution = [](int64_t from, int64_t to, int64_t width, int64_t step) {
      return nn::Conv2d(
          nn::Conv2dOptions(from, to, width).stride(step).padding(width / 2).bias(false));
    };
    first = register_module("first", convolution(in, out, 3, stride));
    norm1 = register_module("norm1", nn::BatchNorm2d(out));
    second = register_module("second", convolution(out, out, 3, 1));
    norm2 = register_module("norm2", nn::BatchNorm2d(out));
    if (stride != 1 || in != out)
      shortcut = register_module(
          "shortcut", nn::Sequential(convolution(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = norm2(second(norm1(first(x)).relu()));
    return (y + (shortcut ? shortcut->forward(x) : x)).relu();
  }
  nn::Conv2d first{nullptr}, second{nullptr};
  nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Block);

struct NetImpl : nn::Module {
  NetImpl() {
    stem = register_module("stem", nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)));
    blocks = register_module("blocks", nn::Sequential(Block(16, 16, 1), Block(16, 32, 2),
                                                      Block(32, 32, 1), Block(32, 64, 2)));
    head = register_module("head", nn::Linear(64, 4));
  }
  at::Tensor forward(const at::Tensor& images) {
    return head(blocks->forward(stem(images).relu()).mean({2, 3}));
  }
  nn::Conv2d stem{nullptr};
  nn::Sequential blocks{nullptr};  // its children are the units
  nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

struct Batch {
  at::Tensor images, labels;
};

Batch next_batch(int64_t size, uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  const at::Tensor labels = torch::randint(0, 4, {size}, generator, torch::kLong);
  at::Tensor images = torch::randn({size, 3, 16, 16}, generator);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t corner = labels[i].item<int64_t>();
    images[i].narrow(1, corner / 2 * 8, 8).narrow(2, corner % 2 * 8, 8) += 0.5;
  }
  return {images, labels};
}

void train(zero::Runtime& runtime, const Options& options) {
  torch::manual_seed(1);
  Net net;
  zero::pytorch::ShardedModule model(runtime, net.ptr(), zero::load_config(options.config));
  zero::Engine& engine = model.engine();
  if (runtime.is_root()) std::printf("%s\n", engine.memory_table().c_str());
  const zero::Batch batch = engine.batch();
  const at::ScalarType type = net->parameters().front().scalar_type();
  while (engine.step_count() < options.steps) {
    for (int64_t micro = 0; micro < batch.accumulation; ++micro) {
      const int64_t first = (engine.step_count() * batch.accumulation + micro) * runtime.size();
      const Batch data = next_batch(batch.micro, static_cast<uint64_t>(first + runtime.rank()));
      if (micro + 1 == batch.accumulation) model.last_micro_step();
      const at::Tensor scores = model.forward([&] { return net->forward(data.images.to(type)); });
      model.backward(nn::functional::cross_entropy(scores.to(at::kFloat), data.labels));
    }
    const zero::StepResult result = model.step().wait();
    if (runtime.is_root())
      std::printf("step %lld: loss %.5f, gradient norm %.4f\n", (long long)result.step, result.loss,
                  result.grad_norm);
  }
  // Every rank has its own samples, so the result is summed.
  model.eval();
  const torch::NoGradGuard no_grad;
  const Batch held_out = next_batch(256, 1'000'000 + static_cast<uint64_t>(runtime.rank()));
  const at::Tensor scores = model.forward([&] { return net->forward(held_out.images.to(type)); });
  const double right = (scores.argmax(1) == held_out.labels).to(at::kDouble).mean().item<double>();
  const double mean = runtime.sum(right) / runtime.size();
  if (runtime.is_root()) std::printf("accuracy %.3f\n", mean);
  if (!options.save.empty()) engine.export_model(options.save);
}

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) { train(runtime, parse(argc, argv)); });
}
