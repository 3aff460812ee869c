// Errors of programs with a sharded module: one message that names the error, on all ranks.
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/pytorch/training.h"
#include "tests/support/stderr_of.h"

#include "tests/pytorch/doctest_after_torch.h"

#include <map>

namespace {

using torch_models::config_of;
using torch_models::Model;
using torch_models::pass;
using zero::pytorch::ShardedModule;

// Returns the first error of two ranks.
std::string error_of(const std::function<void(zero::Runtime&)>& body, int ranks = 2) {
  zero::RuntimeOptions options;
  options.threads = 1;
  try {
    zero::testing::run_ranks(ranks, body, options);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void train_once(ShardedModule& module, const Model& model) {
  module.backward(pass(module, model, 1));
  module.step();
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a parameter outside of a pass has no memory at stage 3") {
  const std::string error = error_of([](zero::Runtime& runtime) {
    const Model model = torch_models::shared_layer_mlp();
    ShardedModule module(runtime, model.module, config_of(3));
    module.backward(pass(module, model, 1));
    module.step();
    model.module->parameters().front().sum();
  });
  contains(error, "layers.0.weight is sharded at rest");
}

TEST_CASE("parameters are readable between steps at stages 0 to 2") {
  for (int stage = 0; stage < 3; ++stage)
    CHECK(error_of([&](zero::Runtime& runtime) {
            const Model model = torch_models::shared_layer_mlp();
            ShardedModule module(runtime, model.module, config_of(stage));
            for (int i = 0; i < 2; ++i) {
              module.backward(pass(module, model, 1));
              module.step();
              const at::Tensor weight = model.module->parameters().front();
              std::vector<float> whole(static_cast<std::size_t>(weight.numel()));
              module.engine().read("layers.0.weight", "value", whole);
              if (!torch::equal(weight.flatten(), torch::from_blob(whole.data(), {weight.numel()})))
                throw std::runtime_error("the tensor and the engine differ");
            }
          }) == "");
}

// Checks that a step of the module changes its first parameter, and leaves the engine's values
// there.
void step_changes_parameters(ShardedModule& module, const Model& model) {
  const at::Tensor weight = model.module->parameters().front();
  const at::Tensor before = weight.detach().clone();
  module.backward(pass(module, model, 1));
  module.step();
  std::vector<float> whole(static_cast<std::size_t>(weight.numel()));
  module.engine().read("layers.0.weight", "value", whole);
  if (torch::equal(weight, before)) throw std::runtime_error("the step changed nothing");
  if (!torch::equal(weight.flatten(), torch::from_blob(whole.data(), {weight.numel()})))
    throw std::runtime_error("the tensor and the engine differ");
}

TEST_CASE("memory that torch gives a parameter between steps is not trained in silence") {
  for (int stage = 0; stage < 3; ++stage)
    CHECK(error_of([&](zero::Runtime& runtime) {
            const Model model = torch_models::shared_layer_mlp();
            ShardedModule module(runtime, model.module, config_of(stage));
            step_changes_parameters(module, model);
            for (const at::Tensor& parameter : model.module->parameters()) {
              at::Tensor copy = parameter.detach().clone();
              parameter.storage().set_data_ptr(copy.storage().set_data_ptr({}));
            }
            step_changes_parameters(module, model);
          }) == "");
}

TEST_CASE("a module that is sharded again leaves its first engine") {
  for (int stage = 0; stage < 3; ++stage)
    CHECK(error_of([&](zero::Runtime& runtime) {
            const Model model = torch_models::shared_layer_mlp();
            auto first = std::make_unique<ShardedModule>(runtime, model.module, config_of(stage));
            step_changes_parameters(*first, model);
            ShardedModule second(runtime, model.module, config_of(stage));
            first.reset();
            for (int i = 0; i < 2; ++i) step_changes_parameters(second, model);
          }) == "");
  const std::string error = error_of([](zero::Runtime& runtime) {
    const Model model = torch_models::shared_layer_mlp();
    const ShardedModule first(runtime, model.module, config_of(3));
    const ShardedModule second(runtime, model.module, config_of(3));
  });
  contains(error, "layers.0.weight is sharded at rest");
}

TEST_CASE("the first of two sharded modules over one module refuses further calls") {
  for (int stage = 0; stage < 3; ++stage) {  // at stage 3 the second one finds no values
    const std::string error = error_of([&](zero::Runtime& runtime) {
      const Model model = torch_models::shared_layer_mlp();
      ShardedModule first(runtime, model.module, config_of(stage));
      const ShardedModule second(runtime, model.module, config_of(stage));
      first.backward(pass(first, model, 1));
    });
    contains(error, "given to another ShardedModule");
  }
}

TEST_CASE("parameters that come after the sharding are refused, not left untrained") {
  for (const int stage : {0, 3})
    for (const bool replaces : {false, true}) {
      const std::string error = error_of([&](zero::Runtime& runtime) {
        const Model model = torch_models::shared_layer_mlp();
        ShardedModule module(runtime, model.module, config_of(stage));
        train_once(module, model);
        const std::string name = replaces ? model.module->named_children().keys().front() : "late";
        const auto layer = torch::nn::Linear(4, 4).ptr();
        if (replaces)
          model.module->replace_module(name, layer);
        else
          model.module->register_module(name, layer);
        train_once(module, model);
      });
      contains(error, "was added to the module, or replaced, after its ShardedModule was made");
      contains(error, replaces ? ".weight" : "late.weight");
    }
}

TEST_CASE("a net that another one's loss passes through forgets its gradients, or names them") {
  enum class Way { forgets, freezes, keeps };
  const auto digest_of = [](int stage, bool fp16, Way way, std::string& said) {
    std::uint64_t digest = 0;
    const std::string error = error_of([&](zero::Runtime& runtime) {
      zero::Config config = config_of(stage);
      config.fp16_enabled = fp16;
      if (fp16) config.loss_scale.loss_scale = 128;
      torch::nn::Sequential g(torch::nn::Linear(4, 6)), d(torch::nn::Linear(6, 1));
      const auto type = fp16 ? at::kHalf : at::kFloat;
      for (auto* net : {&g, &d})
        for (const at::Tensor& parameter : (*net)->parameters())
          parameter.detach().copy_(
              torch::linspace(-0.7, 0.9, parameter.numel()).view(parameter.sizes()));
      ShardedModule generator(runtime, g.ptr(), config), judge(runtime, d.ptr(), config);
      for (int step = 0; step < 4; ++step) {
        const at::Tensor noise = torch::full({2, 4}, 0.25 * (step + 1)).to(type);
        if (way == Way::forgets) d->zero_grad();
        at::Tensor fake = generator.forward([&] { return g->forward(noise); });
        at::Tensor judged = judge.forward([&] { return d->forward(fake.detach()); });
        judge.backward(judged.to(at::kFloat).pow(2).mean());
        judge.step({.mean_over = 1.0});
        const auto require = [&](bool on) {
          for (const at::Tensor& parameter : d->parameters()) parameter.set_requires_grad(on);
        };
        if (way == Way::freezes) require(false);
        judged = judge.forward([&] { return d->forward(fake); });
        generator.backward(judged.to(at::kFloat).sub(1).pow(2).mean());
        generator.step();
        if (way == Way::freezes) require(true);
      }
      const std::uint64_t here = generator.engine().digest() ^ (3 * judge.engine().digest());
      if (runtime.is_root()) digest = here;
    });
    if (!error.empty()) said = error;
    return digest;
  };
  for (const bool fp16 : {false, true}) {
    std::string said;
    const std::uint64_t right = digest_of(0, fp16, Way::forgets, said);
    for (const int stage : {0, 3})
      for (const Way way : {Way::forgets, Way::freezes})
        CHECK(digest_of(stage, fp16, way, said) == right);
    CHECK(said == "");
    const std::string notice =
        zero::tests::stderr_of([&] { CHECK((digest_of(3, fp16, Way::keeps, said) == 0) == fp16); });
    contains(fp16 ? said : notice, "came from the backward of another engine's loss");
    contains(fp16 ? said : notice, "forget them by zero_grad() of this module");
  }
}

TEST_CASE("gradients are read by the engine, and errors about them name calls of C++") {
  const auto after_pass = [](const std::function<void(ShardedModule&, const Model&)>& work) {
    return error_of([&](zero::Runtime& runtime) {
      const Model model = torch_models::shared_layer_mlp();
      ShardedModule module(runtime, model.module, config_of(2));
      module.backward(pass(module, model, 1));
      work(module, model);
      module.step();
    });
  };
  for (const auto& use : std::vector<std::function<void(ShardedModule&, const Model&)>>{
           [](auto&, const Model& model) {
             torch::nn::utils::clip_grad_norm_(model.module->parameters(), 1.0);
           },
           [](auto&, const Model& model) {
             torch::optim::SGD optimizer(model.module->parameters(), 0.1);
             optimizer.step();
           },
           [](auto&, const Model& model) { model.module->parameters().front().grad().sum(); }}) {
    const std::string error = after_pass(use);
    for (const char* part :
         {"gradient_clipping", "StepResult::grad_norm", "Engine::read_gradient()",
          "Gradients::edit()", "ShardedModule::step()", "zero_grad() of the module"})
      contains(error, part);
    CHECK(error.find("zerocore.") == std::string::npos);
  }
  CHECK(after_pass([](ShardedModule& module, const Model& model) {
          const at::Tensor weight = model.module->parameters().front();
          std::vector<float> gradient(static_cast<std::size_t>(weight.numel()));
          module.engine().read_gradient("layers.0.weight", gradient);
          if (std::ranges::count(gradient, 0.0F) == std::ssize(gradient))
            throw std::runtime_error("the gradient is zero");
          model.module->zero_grad();
          module.backward(pass(module, model, 1));
        }) == "");
}

// Runs `work` on a thread of its own if `apart`.
void run_on_thread(bool apart, const std::function<void()>& work) {
  if (!apart) return work();
  std::exception_ptr failure;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

TEST_CASE("threads may take turns with an engine, and one of them may end it") {
  const auto trained = [](int stage, bool apart) {
    std::uint64_t digest = 0;
    const std::string error = error_of([&](zero::Runtime& runtime) {
      const Model model = torch_models::shared_layer_mlp();
      auto module = std::make_unique<ShardedModule>(runtime, model.module, config_of(stage));
      const auto step = [&] {
        module->backward(pass(*module, model, 1));
        module->step();
      };
      for (int i = 0; i < 3; ++i) {
        run_on_thread(apart, step);
        step();
        if (stage < 3) model.module->parameters().front().detach().mul_(0.5);
        run_on_thread(apart, step);
      }
      run_on_thread(apart, [&] {
        const std::uint64_t all = module->engine().digest();
        if (runtime.is_root()) digest = all;
        module.reset();
      });
      at::Tensor x = torch::ones({3}, torch::requires_grad());
      for (int i = 0; i < 2; ++i) (x * x).sum().backward();
    });
    CHECK(error == "");
    return digest;
  };
  for (const int stage : {0, 2, 3}) CHECK(trained(stage, true) == trained(stage, false));
}

TEST_CASE("create_graph is an error that names it") {
  const std::string error = error_of([](zero::Runtime& runtime) {
    const Model model = torch_models::shared_layer_mlp();
    ShardedModule module(runtime, model.module, config_of(2));
    const at::Tensor loss = pass(module, model, 1);
    loss.backward({}, true, true);
    module.step();
  });
  contains(error, "made with create_graph");
}

TEST_CASE("an exception in one rank's forward ends all ranks") {
  const std::string error = error_of([](zero::Runtime& runtime) {
    const Model model = torch_models::tied_transformer();
    ShardedModule module(runtime, model.module, config_of(3));
    for (int step = 0; step < 3; ++step) {
      module.backward(model.loss(1, [&](const auto& call) {
        return module.forward([&] {
          at::Tensor y = call();
          if (step == 1 && runtime.rank() == 1) throw std::runtime_error("no more data");
          return y;
        });
      }));
      module.step();
    }
  });
  contains(error, "no more data");
}

TEST_CASE("after a failure that the program has caught, each call reports it") {
  const std::string error = error_of(
      [](zero::Runtime& runtime) {
        const Model model = torch_models::tied_transformer();
        ShardedModule module(runtime, model.module, config_of(1));
        try {
          module.forward([]() -> at::Tensor { throw std::runtime_error("no more data"); });
        } catch (const std::runtime_error&) {
        }
        pass(module, model, 1);
      },
      1);
  contains(error, "after an earlier call had failed");
  contains(error, "no more data");
}

TEST_CASE("a parameter with other memory than at the start is named") {
  const std::string error = error_of([](zero::Runtime& runtime) {
    const Model model = torch_models::shared_layer_mlp();
    ShardedModule module(runtime, model.module, config_of(1));
    model.module->parameters().back().set_data(torch::zeros({5}));
    pass(module, model, 1);
  });
  contains(error, "head.bias was given other memory");
}

TEST_CASE("backward without a training pass is refused") {
  const std::string error = error_of([](zero::Runtime& runtime) {
    const Model model = torch_models::shared_layer_mlp();
    ShardedModule module(runtime, model.module, config_of(2));
    module.eval();
    module.backward(pass(module, model, 1));
  });
  contains(error, "backward was called before a training pass");
}

TEST_CASE("a module that changes its order trains on, with the same bits at all stages") {
  struct Swapping : torch::nn::Module {
    Swapping() {
      for (int i = 0; i < 3; ++i) layers->push_back(torch::nn::Linear(4, 4));
      register_module("layers", layers);
    }
    at::Tensor forward(at::Tensor x, bool swapped) {
      for (const int i : swapped ? std::array{0, 2, 1} : std::array{0, 1, 2})
        x = layers->ptr<torch::nn::LinearImpl>(i)->forward(x);
      return x;
    }
    torch::nn::ModuleList layers;
  };
  std::map<int, std::uint64_t> digests;
  for (int stage = 0; stage <= 3; ++stage)
    zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
      const auto net = std::make_shared<Swapping>();
      for (at::Tensor& parameter : net->parameters()) {
        const torch::NoGradGuard no_grad;
        parameter.copy_(torch::linspace(-1, 1, parameter.numel()).view(parameter.sizes()));
      }
      ShardedModule module(runtime, net, config_of(stage));
      const at::Tensor x = torch::ones({2, 4}) * (1 + runtime.rank());
      for (const bool swapped : {false, true, false}) {
        module.backward(module.forward([&] { return net->forward(x, swapped); }).sum());
        module.step();
      }
      const std::uint64_t digest = module.engine().digest();
      if (runtime.is_root()) digests[stage] = digest;
    });
  for (int stage = 1; stage <= 3; ++stage) CHECK(digests[stage] == digests[0]);
}

TEST_CASE("memory of a parameter that the program has kept is gone at stage 3") {
  const std::string error = error_of([](zero::Runtime& runtime) {
    const Model model = torch_models::shared_layer_mlp();
    const at::Tensor kept = model.module->named_parameters()["head.weight"].detach().t();
    ShardedModule module(runtime, model.module, config_of(3));
    module.backward(pass(module, model, 1));
    module.step();
    kept.sum();
  });
  contains(error, "head.weight is sharded at rest");
}
