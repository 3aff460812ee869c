// A micro-batch through the engine: opens the scopes, takes the pointers, calls the model. The same
// at every stage and on every device.
#pragma once

#include <type_traits>
#include <vector>

#include "examples/gpt/data/micro_batch.h"
#include "examples/gpt/model/parameters.h"
#include "zero/zero.h"

namespace gpt {

template <class T>
class ScopeValues final : public ParameterValues<T> {
 public:
  explicit ScopeValues(const zero::ForwardScope& scope) : scope_(scope) {}
  const T* value(std::string_view name) const override { return scope_.value<T>(name); }

 private:
  const zero::ForwardScope& scope_;
};

template <class T>
class ScopeGradients final : public ParameterGradients<T> {
 public:
  explicit ScopeGradients(zero::BackwardScope& scope) : scope_(scope) {}
  const T* value(std::string_view name) const override { return scope_.value<T>(name); }
  T* grad(std::string_view name) override { return scope_.grad<T>(name); }
  zero::GradTarget<T> target(std::string_view name) override { return scope_.grad_target<T>(name); }

 private:
  zero::BackwardScope& scope_;
};

// Model: model.h or a GPU's model; both define Element, Loss and Scale.
template <class Model>
typename Model::Scale scale_of(const zero::MicroStep& micro) {
  if constexpr (std::is_pointer_v<typename Model::Scale>)
    return micro.device_loss_scale();
  else
    return micro.loss_scale();
}

template <class Model>
class TrainingStep {
 public:
  using T = typename Model::Element;

  TrainingStep(zero::Engine& engine, Model& model);

  // Returns the mean loss; gradients are those of loss_scale * loss.
  typename Model::Loss run(const MicroBatch& batch, typename Model::Scale loss_scale);

 private:
  zero::Unit& embedding_;
  zero::Unit& head_;
  std::vector<zero::Unit*> blocks_;
  Model& model_;
};

template <class Model>
TrainingStep<Model>::TrainingStep(zero::Engine& engine, Model& model)
    : embedding_(engine.unit(model.names().embedding_unit)),
      head_(engine.unit(model.names().head_unit)),
      model_(model) {
  for (int layer = 0; layer < model.layers(); ++layer)
    blocks_.push_back(&engine.unit(model.names().block_unit(layer)));
}

template <class Model>
typename Model::Loss TrainingStep<Model>::run(const MicroBatch& batch,
                                              typename Model::Scale loss_scale) {
  {
    const zero::ForwardScope scope = embedding_.forward();
    model_.embed(batch, ScopeValues<T>(scope));
  }
  for (int layer = 0; layer < model_.layers(); ++layer) {
    const zero::ForwardScope scope = blocks_[static_cast<std::size_t>(layer)]->forward();
    model_.block(layer, ScopeValues<T>(scope));
  }
  typename Model::Loss loss{};
  {
    zero::BackwardScope scope = head_.backward();
    ScopeGradients<T> parameters(scope);
    loss = model_.head(batch, loss_scale, parameters);
  }
  for (int layer = model_.layers() - 1; layer >= 0; --layer) {
    zero::BackwardScope scope = blocks_[static_cast<std::size_t>(layer)]->backward();
    ScopeGradients<T> parameters(scope);
    model_.block_backward(layer, parameters);
  }
  zero::BackwardScope scope = embedding_.backward();
  ScopeGradients<T> parameters(scope);
  model_.embed_backward(batch, parameters);
  return loss;
}

}  // namespace gpt
