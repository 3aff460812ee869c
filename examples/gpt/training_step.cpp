#include "examples/gpt/training_step.h"

#include "examples/gpt/parameters.h"

namespace gpt {
namespace {

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

}  // namespace

template <class T>
TrainingStep<T>::TrainingStep(zero::Engine& engine, Model<T>& model)
    : embedding_(engine.unit(model.names().embedding_unit)),
      head_(engine.unit(model.names().head_unit)),
      model_(model) {
  for (int layer = 0; layer < model.layers(); ++layer)
    blocks_.push_back(&engine.unit(model.names().block_unit(layer)));
}

template <class T>
double TrainingStep<T>::run(const MicroBatch& batch, float loss_scale) {
  {
    const zero::ForwardScope scope = embedding_.forward();
    model_.embed(batch, ScopeValues<T>(scope));
  }
  for (int layer = 0; layer < model_.layers(); ++layer) {
    const zero::ForwardScope scope = blocks_[static_cast<std::size_t>(layer)]->forward();
    model_.block(layer, ScopeValues<T>(scope));
  }
  double loss = 0;
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

template class TrainingStep<float>;
template class TrainingStep<zero::bf16>;
template class TrainingStep<zero::fp16>;

}  // namespace gpt
