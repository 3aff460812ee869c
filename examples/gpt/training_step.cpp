#include "examples/gpt/training_step.h"

#include "examples/gpt/model_spec.h"

namespace gpt {
namespace {

template <class T>
BlockValues<T> values_of(const zero::Scope& scope) {
  const auto value = [&](const char* name) { return scope.value<T>(name); };
  return {.ln_1 = {value("ln_1.weight"), value("ln_1.bias")},
          .ln_2 = {value("ln_2.weight"), value("ln_2.bias")},
          .qkv = {value("attn.c_attn.weight"), value("attn.c_attn.bias")},
          .projection = {value("attn.c_proj.weight"), value("attn.c_proj.bias")},
          .expand = {value("mlp.c_fc.weight"), value("mlp.c_fc.bias")},
          .contract = {value("mlp.c_proj.weight"), value("mlp.c_proj.bias")}};
}

template <class T>
BlockGradients<T> gradients_of(zero::BackwardScope& scope) {
  const auto grad = [&](const char* name) { return scope.grad<T>(name); };
  const auto target = [&](const char* name) { return scope.grad_target<T>(name); };
  return {.ln_1 = {grad("ln_1.weight"), grad("ln_1.bias")},
          .ln_2 = {grad("ln_2.weight"), grad("ln_2.bias")},
          .qkv = {target("attn.c_attn.weight"), grad("attn.c_attn.bias")},
          .projection = {target("attn.c_proj.weight"), grad("attn.c_proj.bias")},
          .expand = {target("mlp.c_fc.weight"), grad("mlp.c_fc.bias")},
          .contract = {target("mlp.c_proj.weight"), grad("mlp.c_proj.bias")}};
}

}  // namespace

template <class T>
TrainingStep<T>::TrainingStep(zero::Engine& engine, Model<T>& model)
    : embedding_(engine.unit(embedding_unit)), head_(engine.unit(head_unit)), model_(model) {
  for (int layer = 0; layer < model.layers(); ++layer)
    blocks_.push_back(&engine.unit(block_unit(layer)));
}

template <class T>
double TrainingStep<T>::run(const MicroBatch& batch, float loss_scale) {
  {
    const zero::ForwardScope scope = embedding_.forward();
    model_.embed(batch, {scope.value<T>("wte.weight"), scope.value<T>("wpe.weight")});
  }
  for (int layer = 0; layer < model_.layers(); ++layer) {
    const zero::ForwardScope scope = blocks_[static_cast<std::size_t>(layer)]->forward();
    model_.block(layer, values_of<T>(scope));
  }
  double loss = 0;
  {
    zero::BackwardScope scope = head_.backward();
    loss = model_.head(
        batch, loss_scale,
        {{scope.value<T>("weight"), scope.value<T>("bias")}, scope.value<T>(embedding_name)},
        {{scope.grad<T>("weight"), scope.grad<T>("bias")}, scope.grad_target<T>(embedding_name)});
  }
  for (int layer = model_.layers() - 1; layer >= 0; --layer) {
    zero::BackwardScope scope = blocks_[static_cast<std::size_t>(layer)]->backward();
    model_.block_backward(layer, values_of<T>(scope), gradients_of<T>(scope));
  }
  zero::BackwardScope scope = embedding_.backward();
  model_.embed_backward(batch, {scope.grad<T>("wte.weight"), scope.grad<T>("wpe.weight")});
  return loss;
}

template class TrainingStep<float>;
template class TrainingStep<zero::bf16>;
template class TrainingStep<zero::fp16>;

}  // namespace gpt
