// A torch::nn::Module trained by ZeroCore: each rank holds its shards of the parameters, as the
// config's ZeRO stage says, and the module runs unchanged.
//
//   Net net;                                                  // any torch::nn::Module
//   zero::pytorch::ShardedModule model(runtime, net.ptr(), zero::load_config("ds_config.json"));
//   at::Tensor y = model.forward([&] { return net->forward(x); });
//   model.backward(torch::mse_loss(y, target));
//   model.step();
//
// The first training pass says in which order the module uses its units; later ones follow it. What
// it leaves out on some ranks (a dropped layer, an expert without tokens) counts as a gradient of
// zero. At stage 3 a parameter has memory inside of passes alone. Calls are collective and come
// from one thread. Results have equal bits for an equal number of torch's threads: the constructor
// sets it to Runtime::threads().
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "pytorch/sharded_parameters.h"
#include "pytorch/wrap_policy.h"
#include "zero/zero.h"

namespace zero::pytorch {

struct ShardedModuleOptions {
  WrapPolicy policy = wrap_children_of_lists();
  // Floating-point parameters and buffers take the config's compute dtype, as module->to() would
  // do; the values of the optimizer start from those before. Off: they keep their own.
  bool convert = true;
  // Off: the module's own values are dropped unread, and the weights come from
  // Engine::load_weights(), initialize() or resume() before the first pass.
  bool take_values = true;
  // Weight decay, groups and the like, by global name: the module's names. Default: weight decay
  // for all, as torch's optimizers have it.
  std::function<ParamOptions(const std::string& name, const at::Tensor&)> parameter_options = {};
};

class ShardedModule {
 public:
  // Takes the module's parameters and buffers over, with rank 0's values. Later changes of
  // requires_grad, dtype or memory of a parameter are refused. The Runtime outlives it.
  ShardedModule(Runtime& runtime, std::shared_ptr<torch::nn::Module> module, Config config,
                ShardedModuleOptions options = {});
  ~ShardedModule();

  // Calls the module and returns what it returns. With gradients, in train() mode, it is a micro
  // step; else an evaluation, which all ranks do equally often.
  template <class Call>
  std::invoke_result_t<Call> forward(Call&& call) {
    if constexpr (std::is_void_v<std::invoke_result_t<Call>>) {
      forward_pass(call);
    } else {
      std::optional<std::invoke_result_t<Call>> result;
      forward_pass([&] { result.emplace(call()); });
      return std::move(*result);
    }
  }
  // The mean loss of this rank's micro batch; the engine averages over ranks and micro steps.
  void backward(const at::Tensor& loss);
  // The optimizer step, after as many passes as the program likes. Gradients are zero afterwards.
  StepTicket step(StepOptions options = {});
  // Announces that the next backward is the last before step(): its reductions overlap it.
  void last_micro_step() { last_ = true; }

  void train(bool on = true) { module_->train(on); }
  void eval() { module_->eval(); }
  torch::nn::Module& module() { return *module_; }
  // For all else: saving and loading, evaluation figures, the memory table.
  Engine& engine() { return *engine_; }

 private:
  void forward_pass(const std::function<void()>& call);
  void guarded(const char* what, const std::function<void()>& work);
  void refuse_after_failure(const char* what) const;

  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ShardedParameters> parameters_;  // ends before the engine
  std::string failure_;
  bool last_ = false;
};

}  // namespace zero::pytorch
