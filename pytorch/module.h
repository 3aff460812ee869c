// A torch::nn::Module trained by ZeroCore: the module runs unchanged, and each rank stores the
// shards of the config's ZeRO stage.
//
//   Net net;                                                  // any torch::nn::Module
//   zero::pytorch::ShardedModule model(runtime, net.ptr(), zero::load_config("ds_config.json"));
//   at::Tensor y = model.forward([&] { return net->forward(x); });
//   model.backward(torch::mse_loss(y, target));
//   model.step();
//
// The first training pass records the order of the units, and later passes follow. A unit that a
// rank skips (a dropped layer, an expert without tokens) has a gradient of zero there. At stage 3 a
// parameter has memory only inside passes. Calls are collective and must come from one thread.
// Results are bitwise identical for equal numbers of torch threads: the constructor sets the number
// to Runtime::threads().
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
  // Floating-point parameters and buffers are converted to the config's compute dtype, as
  // module->to() would do; the optimizer's values start from the unconverted values. False: no
  // conversion.
  bool convert = true;
  // False: the module's values are dropped unread, and Engine::load_weights(), initialize() or
  // resume() must set the weights before the first pass.
  bool take_values = true;
  // Returns weight decay, group and other options of a parameter by name in the module. Default:
  // weight decay for all, as in torch's optimizers.
  std::function<ParamOptions(const std::string& name, const at::Tensor&)> parameter_options = {};
};

class ShardedModule {
 public:
  // Takes over the module's parameters and buffers, with rank 0's values. Later changes of a
  // parameter's dtype or memory throw UsageError. So do a training pass of a module that has got
  // new parameters or trains a frozen parameter, and a step while a trained parameter is frozen;
  // freezing for a pass, as a GAN does with its discriminator, is allowed. The Runtime must outlive
  // this object.
  ShardedModule(Runtime& runtime, std::shared_ptr<torch::nn::Module> module, Config config,
                ShardedModuleOptions options = {});
  ~ShardedModule();

  // Calls the module and returns its result. With gradients enabled and in train() mode this is a
  // micro step. Otherwise this is an evaluation, and all ranks must run equally many.
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
  // Computes gradients of `loss`, the mean over this rank's micro-batch; the engine averages over
  // ranks and micro-batches.
  void backward(const at::Tensor& loss);
  // Runs the optimizer step, after any number of passes, and zeroes the gradients.
  StepTicket step(StepOptions options = {});
  // Declares the next backward the last before step(), so that the reductions overlap.
  void last_micro_step() { last_ = true; }

  void train(bool on = true) { module_->train(on); }
  void eval() { module_->eval(); }
  torch::nn::Module& module() { return *module_; }
  // The engine, for saving, loading, figures and the memory table.
  Engine& engine() { return *engine_; }

 private:
  void take_over();
  void refuse_other_parameters() const;
  void forward_pass(const std::function<void()>& call);
  void guarded(const char* what, const std::function<void()>& work);
  void refuse_after_failure(const char* what) const;

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<const c10::TensorImpl*> taken_;  // the module's parameters, in module order
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ShardedParameters> parameters_;  // ends before the engine
  std::string failure_;
  bool last_ = false;
};

}  // namespace zero::pytorch
