#include "tests/pytorch/models.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <utility>

namespace torch_models {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

namespace {

at::Tensor random(std::uint64_t seed, at::IntArrayRef sizes) {
  return torch::randn(sizes, at::detail::createCPUGenerator(seed));
}

at::Tensor tokens(std::uint64_t seed, int64_t vocabulary, at::IntArrayRef sizes) {
  return torch::randint(0, vocabulary, sizes, at::detail::createCPUGenerator(seed));
}

at::ScalarType type_of(const nn::Module& module) {
  return module.parameters().front().scalar_type();
}

// Makes modules one at a time, since their initial values come from a generator that all threads of
// the process share.
template <class Module>
std::shared_ptr<Module> made() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(7);
  return std::make_shared<Module>();
}

// A regression to a fixed function of the input, in the module's type.
template <class Module>
Model regression(std::vector<int64_t> sizes, int64_t outputs) {
  auto module = made<Module>();
  return {module, [module, sizes, outputs](std::uint64_t seed, const Model::Wrap& wrap) {
            const at::Tensor x = random(seed, sizes);
            const at::Tensor wanted = x.flatten(1).narrow(1, 0, outputs).sin();
            const at::Tensor typed = x.to(type_of(*module));
            const at::Tensor y = wrap([&] { return module->forward(typed, seed); });
            return (y.to(at::kFloat) - wanted).square().mean();
          }};
}

struct SharedLayer : nn::Module {
  SharedLayer() {
    for (int64_t i = 0; i < 3; ++i) layers->push_back(nn::Linear(i == 0 ? 12 : 24, 24));
    register_module("layers", layers);
    head = register_module("head", nn::Linear(24, 5));
  }
  at::Tensor forward(at::Tensor x, std::uint64_t) {
    const auto layer = [&](int i) { return layers->ptr<nn::LinearImpl>(i); };
    x = layer(0)->forward(x).tanh();
    x = layer(1)->forward(x).tanh();
    x = x + layer(2)->forward(x).tanh();
    x = layer(1)->forward(x).tanh();
    x = x + layer(1)->forward(x).tanh();
    return head(x);
  }
  nn::ModuleList layers;
  nn::Linear head{nullptr};
};

struct ResidualBlock : nn::Module {
  explicit ResidualBlock(int64_t channels) {
    const auto options = nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false);
    first = register_module("first", nn::Conv2d(options));
    norm = register_module("norm", nn::BatchNorm2d(channels));
    second = register_module("second", nn::Conv2d(options));
  }
  at::Tensor forward(const at::Tensor& x) { return (x + second(norm(first(x)).relu())).relu(); }
  nn::Conv2d first{nullptr}, second{nullptr};
  nn::BatchNorm2d norm{nullptr};
};

struct ResidualNet : nn::Module {
  ResidualNet() {
    stem = register_module("stem", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
    norm = register_module("norm", nn::BatchNorm2d(8));
    blocks = register_module("blocks", nn::Sequential(ResidualBlock(8), ResidualBlock(8)));
    head = register_module("head", nn::Linear(8, 4));
  }
  at::Tensor forward(at::Tensor x, std::uint64_t) {
    x = blocks->forward(norm(stem(x)).relu());
    return head(x.mean({2, 3}));
  }
  nn::Conv2d stem{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Sequential blocks{nullptr};
  nn::Linear head{nullptr};
};

struct Attention : nn::Module {
  Attention(int64_t width, int64_t heads_) : heads(heads_) {
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    out = register_module("out", nn::Linear(width, width));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto b = x.size(0), t = x.size(1), c = x.size(2);
    const auto parts = qkv(x).view({b, t, 3, heads, c / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor y =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    return out(y.transpose(1, 2).reshape({b, t, c}));
  }
  int64_t heads;
  nn::Linear qkv{nullptr}, out{nullptr};
};

struct Block : nn::Module {
  explicit Block(int64_t width) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    attention = register_module("attention", std::make_shared<Attention>(width, 2));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    up = register_module("up", nn::Linear(width, 4 * width));
    down = register_module("down", nn::Linear(4 * width, width));
  }
  at::Tensor forward(at::Tensor x) {
    x = x + attention->forward(norm1(x));
    return x + down(torch::gelu(up(norm2(x))));
  }
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  std::shared_ptr<Attention> attention;
  nn::Linear up{nullptr}, down{nullptr};
};

constexpr int64_t vocabulary = 37;

struct Transformer : nn::Module {
  Transformer() {
    embedding = register_module("embedding", nn::Embedding(vocabulary, 16));
    positions = register_parameter("positions", torch::randn({10, 16}) * 0.02);
    for (int i = 0; i < 2; ++i) blocks->push_back(std::make_shared<Block>(16));
    register_module("blocks", blocks);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({16})));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = embedding(ids) + positions.narrow(0, 0, ids.size(1));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return F::linear(norm(x), embedding->weight);
  }
  nn::Embedding embedding{nullptr};
  at::Tensor positions;
  nn::ModuleList blocks;
  nn::LayerNorm norm{nullptr};
};

// Like torch.utils.checkpoint with use_reentrant=True.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            Block* block) {
    context->save_for_backward({x});
    context->saved_data["block"] = reinterpret_cast<int64_t>(block);
    const torch::NoGradGuard no_grad;
    return block->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto* block = reinterpret_cast<Block*>(context->saved_data["block"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    {
      const torch::AutoGradMode with_grad(true);
      torch::autograd::backward({block->forward(x)}, {gradients[0]});
    }
    return {x.grad(), at::Tensor()};
  }
};

struct RecomputedBlocks : nn::Module {
  RecomputedBlocks() {
    stem = register_module("stem", nn::Linear(12, 16));
    for (int i = 0; i < 2; ++i) blocks->push_back(std::make_shared<Block>(16));
    register_module("blocks", blocks);
    head = register_module("head", nn::Linear(16, 5));
  }
  at::Tensor forward(const at::Tensor& input, std::uint64_t) {
    at::Tensor x = stem(input).unsqueeze(0);
    for (const int i : {0, 1, 0}) x = Recomputed::apply(x, blocks->ptr<Block>(i).get());
    return head(x.squeeze(0));
  }
  nn::Linear stem{nullptr}, head{nullptr};
  nn::ModuleList blocks;
};

struct DroppedLayers : nn::Module {
  DroppedLayers() {
    for (int i = 0; i < 4; ++i) layers->push_back(nn::Linear(12, 12));
    register_module("layers", layers);
    head = register_module("head", nn::Linear(12, 5));
  }
  at::Tensor forward(at::Tensor x, std::uint64_t seed) {
    // The first passes use all layers, so that all are known.
    for (std::uint64_t i = 0; i < 4; ++i)
      if (seed < 100 || i != seed % 5) x = x + layers->ptr<nn::LinearImpl>(i)->forward(x).tanh();
    return head(x);
  }
  nn::ModuleList layers;
  nn::Linear head{nullptr};
};

struct Adapter : nn::Module {
  Adapter() {
    base = register_module("base", nn::Linear(12, 12));
    for (at::Tensor& parameter : base->parameters()) parameter.requires_grad_(false);
    down = register_module("down", nn::Linear(nn::LinearOptions(12, 2).bias(false)));
    up = register_module("up", nn::Linear(nn::LinearOptions(2, 12).bias(false)));
  }
  at::Tensor forward(const at::Tensor& x) { return (base(x) + up(down(x))).tanh() + x; }
  nn::Linear base{nullptr}, down{nullptr}, up{nullptr};
};

struct Adapters : nn::Module {
  Adapters() {
    stem = register_module("stem", nn::Linear(12, 12));
    for (at::Tensor& parameter : stem->parameters()) parameter.requires_grad_(false);
    layers = register_module("layers", nn::Sequential(Adapter(), Adapter(), Adapter()));
  }
  at::Tensor forward(const at::Tensor& x, std::uint64_t) {
    return layers->forward(stem(x)).narrow(1, 0, 5);
  }
  nn::Linear stem{nullptr};
  nn::Sequential layers{nullptr};
};

struct Mixture : nn::Module {
  Mixture() {
    gate = register_module("gate", nn::Linear(12, 6));
    for (int i = 0; i < 6; ++i) experts->push_back(nn::Linear(12, 12));
    register_module("experts", experts);
    head = register_module("head", nn::Linear(12, 5));
  }
  at::Tensor forward(const at::Tensor& x, std::uint64_t) {
    const auto [weight, chosen] = gate(x).softmax(-1).max(-1);
    at::Tensor sum = torch::zeros_like(x);
    for (int64_t i = 0; i < 6; ++i) {
      const at::Tensor rows = (chosen == i).nonzero().flatten();
      if (rows.numel() == 0) continue;
      const at::Tensor y = experts->ptr<nn::LinearImpl>(i)->forward(x.index_select(0, rows)).tanh();
      sum = sum.index_add(0, rows, y * weight.index_select(0, rows).unsqueeze(1));
    }
    return head(x + sum);
  }
  nn::Linear gate{nullptr}, head{nullptr};
  nn::ModuleList experts;
};

}  // namespace

Model shared_layer_mlp() {
  return regression<SharedLayer>({4, 12}, 5);
}

Model residual_convolutions() {
  return regression<ResidualNet>({4, 3, 6, 6}, 4);
}

Model tied_transformer() {
  auto module = made<Transformer>();
  return {module, [module](std::uint64_t seed, const Model::Wrap& wrap) {
            const at::Tensor ids = tokens(seed, vocabulary, {2, 9});
            const at::Tensor logits =
                wrap([&] { return module->forward(ids.narrow(1, 0, 8)); }).to(at::kFloat);
            return F::cross_entropy(logits.reshape({-1, vocabulary}),
                                    ids.narrow(1, 1, 8).reshape({-1}));
          }};
}

Model dropped_layers() {
  return regression<DroppedLayers>({4, 12}, 5);
}

Model low_rank_adapters() {
  return regression<Adapters>({4, 12}, 5);
}

Model recomputed_blocks() {
  return regression<RecomputedBlocks>({4, 12}, 5);
}

Model experts() {
  return regression<Mixture>({4, 12}, 5);
}

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      {"shared layer", &shared_layer_mlp},       {"convolutions", &residual_convolutions, true},
      {"transformer", &tied_transformer},        {"dropped layers", &dropped_layers},
      {"low-rank adapters", &low_rank_adapters}, {"experts", &experts},
  };
  return all;
}

}  // namespace torch_models
