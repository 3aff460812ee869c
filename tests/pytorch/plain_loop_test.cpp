// One rank in fp32 is bitwise identical to a plain loop with torch's own optimizer.
#include <cmath>

#include "tests/pytorch/training.h"

#include "tests/pytorch/doctest_after_torch.h"

namespace {

using torch_models::config_of;
using torch_models::Family;
using torch_models::Model;
using torch_models::seed_of;

std::vector<double> plain_losses(const Model& model, int accumulation, int steps) {
  const zero::Config config = config_of(0, accumulation);
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : model.module->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  torch::optim::AdamW optimizer(trained, torch::optim::AdamWOptions(config.optimizer.learning_rate)
                                             .weight_decay(config.optimizer.weight_decay));
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    double sum = 0;
    for (int micro = 0; micro < accumulation; ++micro) {
      const at::Tensor loss =
          model.loss(seed_of(step, micro, 0), [](const auto& call) { return call(); });
      sum += loss.item<double>();
      (loss / accumulation).backward();
    }
    // Gradients are set to zero, because torch does not change a parameter without one, but ours
    // decays it.
    for (at::Tensor& parameter : trained)
      if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    torch::nn::utils::clip_grad_norm_(trained, config.gradient_clipping);
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(sum / accumulation);
  }
  return losses;
}

}  // namespace

TEST_CASE("one rank follows a plain loop of torch") {
  torch::set_num_threads(1);
  for (const Family& family : torch_models::families())
    for (const int accumulation : {1, 3}) {
      INFO(family.name, ", accumulation ", accumulation);
      const std::vector<double> expected = plain_losses(family.make(), accumulation, 10);
      const auto trace = torch_models::train_ranks(family.make, 1, config_of(3, accumulation), 10);
      for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(std::abs(trace.losses[i] - expected[i]) <= 1e-6 * std::abs(expected[i]));
    }
}
