// A small transformer that learns to continue sequences; its head shares the embedding's weight.
// Run: mpirun -n 2 libtorch_text --deepspeed_config ds_config.json
#include <torch/torch.h>

#include <cstdio>

#include "examples/libtorch/options.h"
#include "pytorch/module.h"

namespace nn = torch::nn;

constexpr int64_t vocabulary = 97, width = 64, heads = 4, context = 32;

struct BlockImpl : nn::Module {
  BlockImpl() {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    out = register_module("out", nn::Linear(width, width));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    up = register_module("up", nn::Linear(width, 4 * width));
    down = register_module("down", nn::Linear(4 * width, width));
  }
  at::Tensor forward(at::Tensor x) {
    const int64_t b = x.size(0), t = x.size(1);
    const auto parts =
        qkv(norm1(x)).view({b, t, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*causal=*/true);
    x = x + out(attended.transpose(1, 2).reshape({b, t, width}));
    return x + down(torch::gelu(up(norm2(x))));
  }
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

struct TransformerImpl : nn::Module {
  TransformerImpl() {
    tokens = register_module("tokens", nn::Embedding(vocabulary, width));
    positions = register_module("positions", nn::Embedding(context, width));
    blocks = register_module("blocks", nn::Sequential(Block(), Block(), Block(), Block()));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    for (const nn::Embedding& embedding : {tokens, positions})
      nn::init::normal_(embedding->weight, 0, 0.02);
  }
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor x = tokens(ids) + positions(torch::arange(ids.size(1)));
    return nn::functional::linear(norm(blocks->forward(x)), tokens->weight);
  }
  nn::Embedding tokens{nullptr}, positions{nullptr};
  nn::Sequential blocks{nullptr};  // its children are the units
  nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Transformer);

// Each sequence counts on by its own increment, so its first two tokens determine the rest.
at::Tensor next_batch(int64_t size, uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  const at::Tensor start = torch::randint(0, vocabulary, {size, 1}, generator, torch::kLong);
  const at::Tensor step = torch::randint(1, 10, {size, 1}, generator, torch::kLong);
  return (start + step * torch::arange(context + 1)).remainder(vocabulary);
}

void train(zero::Runtime& runtime, const Options& options) {
  torch::manual_seed(1);
  Transformer net;
  zero::pytorch::ShardedModuleOptions module_options;
  module_options.parameter_options = [](const std::string&, const at::Tensor& parameter) {
    return zero::ParamOptions{.decay = parameter.dim() > 1};
  };
  zero::pytorch::ShardedModule model(runtime, net.ptr(), zero::load_config(options.config),
                                     module_options);
  zero::Engine& engine = model.engine();
  if (runtime.is_root()) std::printf("%s\n", engine.memory_table().c_str());
  const zero::Batch batch = engine.batch();
  while (engine.step_count() < options.steps) {
    for (int64_t micro = 0; micro < batch.accumulation; ++micro) {
      const int64_t first = (engine.step_count() * batch.accumulation + micro) * runtime.size();
      const at::Tensor ids = next_batch(batch.micro, static_cast<uint64_t>(first + runtime.rank()));
      if (micro + 1 == batch.accumulation) model.last_micro_step();
      const at::Tensor logits =
          model.forward([&] { return net->forward(ids.narrow(1, 0, context)); });
      model.backward(nn::functional::cross_entropy(logits.to(at::kFloat).flatten(0, 1),
                                                   ids.narrow(1, 1, context).flatten()));
    }
    const zero::StepResult result = model.step().wait();
    if (runtime.is_root())
      std::printf("step %lld: loss %.5f, gradient norm %.4f\n", (long long)result.step, result.loss,
                  result.grad_norm);
  }
  if (!options.save.empty()) engine.export_model(options.save);
}

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) { train(runtime, parse(argc, argv)); });
}
