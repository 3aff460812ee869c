// Passes beyond one forward and one backward per step, and tensors that outlive them.
#include "tests/pytorch/training.h"

#include "tests/pytorch/doctest_after_torch.h"

#include <cmath>
#include <mutex>
#include <stdexcept>

#include "tests/support/temporary_directory.h"

namespace {

using torch_models::config_of;
using torch_models::Model;
using torch_models::pass;
using torch_models::seed_of;
using zero::pytorch::ShardedModule;

using Make = Model (*)();
using Loop = std::function<void(ShardedModule&, const Model&, zero::Runtime&)>;

struct Result {
  std::vector<double> figures;
  std::uint64_t digest = 0;
  bool operator==(const Result&) const = default;
};

// Runs the loop on each rank; `figures` of the result are the root's.
template <class Body>
Result on_ranks(int ranks, Make make, const zero::Config& config, const Body& body) {
  Result result;
  zero::RuntimeOptions options;
  options.threads = 1;
  zero::testing::run_ranks(
      ranks,
      [&](zero::Runtime& runtime) {
        const Model model = make();
        ShardedModule module(runtime, model.module, config);
        std::vector<double> figures = body(module, model, runtime);
        const std::uint64_t digest = module.engine().digest();
        if (runtime.is_root()) result = {std::move(figures), digest};
      },
      options);
  return result;
}

template <class Body>
Result same_at_all_stages(Make make, int ranks, int accumulation, const Body& body) {
  const Result expected = on_ranks(ranks, make, config_of(0, accumulation), body);
  for (int stage = 1; stage <= 3; ++stage) {
    INFO("stage ", stage);
    CHECK(on_ranks(ranks, make, config_of(stage, accumulation), body) == expected);
  }
  return expected;
}

double train_step(ShardedModule& module, const Model& model, zero::Runtime& runtime,
                  std::int64_t step) {
  module.backward(pass(module, model, seed_of(step, 0, runtime.rank())));
  return module.step().wait().loss;
}

}  // namespace

TEST_CASE("evaluation between steps changes no weights, and sees those of the last step") {
  for (const Make make : {&torch_models::tied_transformer, &torch_models::residual_convolutions})
    same_at_all_stages(make, 2, 1, [](ShardedModule& module, const Model& model, auto& runtime) {
      std::vector<double> figures;
      for (int step = 0; step < 3; ++step) {
        figures.push_back(train_step(module, model, runtime, step));
        module.eval();
        const torch::NoGradGuard no_grad;
        for (int i = 0; i < 2; ++i)
          figures.push_back(pass(module, model, seed_of(step, i, 5)).template item<double>());
        module.train();
        torch::AutoGradMode with_grad(true);
      }
      return figures;
    });
}

TEST_CASE("evaluation may come before the first step") {
  same_at_all_stages(&torch_models::tied_transformer, 2, 1,
                     [](ShardedModule& module, const Model& model, auto& runtime) {
                       module.eval();
                       std::vector<double> figures{pass(module, model, 3).template item<double>()};
                       module.train();
                       figures.push_back(train_step(module, model, runtime, 1));
                       return figures;
                     });
}

TEST_CASE("two forwards may share a backward") {
  same_at_all_stages(
      &torch_models::tied_transformer, 2, 1,
      [](ShardedModule& module, const Model& model, auto& runtime) {
        std::vector<double> figures;
        for (int step = 0; step < 3; ++step) {
          const at::Tensor first = pass(module, model, seed_of(step, 0, runtime.rank()));
          const at::Tensor second = pass(module, model, seed_of(step, 1, runtime.rank()));
          module.backward((first + second) / 2);
          figures.push_back(module.step().wait().loss);
        }
        return figures;
      });
}

TEST_CASE("two backwards over one forward add up") {
  const auto both = [](bool separately) {
    return [separately](ShardedModule& module, const Model& model, auto& runtime) {
      for (int step = 0; step < 3; ++step) {
        const at::Tensor loss = pass(module, model, seed_of(step, 0, runtime.rank()));
        if (separately) {
          (loss * 0.25).backward({}, true);
          (loss * 0.75).backward();
        } else {
          module.backward(loss);
        }
        module.step({.mean_over = 1});
      }
      module.eval();
      return std::vector<double>{pass(module, model, 7).template item<double>()};
    };
  };
  const double separate =
      same_at_all_stages(&torch_models::tied_transformer, 2, 2, both(true)).figures[0];
  const double at_once =
      on_ranks(2, &torch_models::tied_transformer, config_of(3, 2), both(false)).figures[0];
  CHECK(separate == doctest::Approx(at_once).epsilon(1e-5));
}

TEST_CASE("a dynamic loss scale of fp16 leaves the gradients as they are") {
  zero::Config config = config_of(3);
  config.fp16_enabled = true;
  const auto run = [&](int ranks) {
    return on_ranks(ranks, &torch_models::shared_layer_mlp, config,
                    [](ShardedModule& module, const Model& model, auto& runtime) {
                      std::vector<double> figures;
                      for (int step = 0; step < 20; ++step)
                        figures.push_back(train_step(module, model, runtime, 1));
                      return figures;
                    });
  };
  const Result result = run(1);
  CHECK(result.figures.back() < result.figures.front());
}

TEST_CASE("a checkpoint resumes at another stage and number of ranks, buffers included") {
  const zero::tests::TemporaryDirectory directory;
  const std::string path = directory.path().string();
  std::vector<float> statistics;
  const Result saved =
      on_ranks(2, &torch_models::residual_convolutions, config_of(3),
               [&](ShardedModule& module, const Model& model, zero::Runtime& runtime) {
                 for (int step = 0; step < 3; ++step) train_step(module, model, runtime, step);
                 module.engine().save_checkpoint(path).wait();
                 const at::Tensor mean = model.module->named_buffers()["norm.running_mean"];
                 if (runtime.is_root())
                   statistics.assign(mean.data_ptr<float>(), mean.data_ptr<float>() + mean.numel());
                 return std::vector<double>();
               });
  const Result resumed =
      on_ranks(3, &torch_models::residual_convolutions, config_of(1),
               [&](ShardedModule& module, const Model& model, zero::Runtime&) {
                 module.engine().resume(path);
                 const at::Tensor mean = model.module->named_buffers()["norm.running_mean"];
                 if (!torch::equal(mean, torch::from_blob(statistics.data(), mean.sizes())))
                   throw std::runtime_error("the running mean differs");
                 return std::vector<double>();
               });
  CHECK(resumed.digest == saved.digest);
}

TEST_CASE("exported names are the module's, and a module without values loads them") {
  const zero::tests::TemporaryDirectory directory;
  const std::string path = directory / "exported";
  const Result saved = on_ranks(2, &torch_models::tied_transformer, config_of(3),
                                [&](ShardedModule& module, const Model&, zero::Runtime&) {
                                  module.engine().export_model(path);
                                  std::vector<float> whole(16);  // of the unit around all others
                                  module.engine().read("norm.weight", "value", whole);
                                  return std::vector<double>();
                                });
  zero::RuntimeOptions options;
  options.threads = 1;
  zero::testing::run_ranks(
      2,
      [&](zero::Runtime& runtime) {
        const Model model = torch_models::tied_transformer();
        for (at::Tensor& parameter : model.module->parameters()) {
          const torch::NoGradGuard no_grad;
          parameter.fill_(77);
        }
        ShardedModule module(runtime, model.module, config_of(2), {.take_values = false});
        module.engine().load_weights(path);
        if (module.engine().digest() != saved.digest)
          throw std::runtime_error("the loaded weights differ");
        train_step(module, model, runtime, 1);
      },
      options);
}
