// A step of a stage of a pipeline through the engine: opens the scope of each task, takes the
// pointers to parameters and to what units pass on, calls the model.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "examples/gpt/cpu/blocks.h"
#include "examples/gpt/train/training_step.h"
#include "tools/planner/model_shape.h"

namespace gpt {

inline bool is_block(const zero::Unit& unit, const PartNames& names) {
  return unit.name() != names.embedding_unit && unit.name() != names.head_unit;
}

// The part of the model that this rank's stage has.
inline zero::planner::StagePart part_in_stage(zero::Engine& engine, const ModelConfig& model) {
  const PartNames names = names_of(model);
  zero::planner::StagePart part{.head = engine.units().back().name() == names.head_unit};
  for (const zero::Unit& unit : engine.units())
    if (is_block(unit, names)) part.layers += unit.micro_batches_in_flight();
  return part;
}

// The activations of the stage's blocks, for all micro-batches in flight.
inline HeldActivations held_in_stage(const zero::planner::StagePart& part,
                                     Activations activations) {
  return {held_layers(activations, part.layers), false, part.head};
}

template <class Model>
class PipelineStep {
 public:
  using T = typename Model::Element;

  PipelineStep(zero::Engine& engine, Model& model) : engine_(engine), model_(model) {
    int held = 0;
    for (const zero::Unit& unit : engine.units()) {
      held_before_.push_back(held);
      if (is_block(unit, model.names())) held += unit.micro_batches_in_flight();
    }
  }

  // `load` returns the micro-batch of a micro step; valid until its next call.
  void run(const std::function<MicroBatch(const zero::MicroStep&)>& load) {
    for (const zero::Task task : engine_.tasks())
      task.is_forward() ? forward(task, load) : backward(task, load);
  }

 private:
  using Load = std::function<MicroBatch(const zero::MicroStep&)>;

  // The number of a block and a micro-batch among the activations held.
  int number_of(const zero::Task& task) const {
    const zero::Unit& unit = task.unit();
    return held_before_[unit.index()] + task.micro_step().index() % unit.micro_batches_in_flight();
  }

  void forward(const zero::Task& task, const Load& load) {
    const zero::ForwardScope scope = task.unit().forward();
    const ScopeValues<T> parameters(scope);
    if (task.unit().name() == model_.names().embedding_unit)
      model_.embed(load(task.micro_step()), parameters, scope.output<T>());
    else
      model_.block(number_of(task), parameters, scope.input<T>(), scope.output<T>());
  }

  void backward(const zero::Task& task, const Load& load) {
    zero::MicroStep micro = task.micro_step();
    zero::BackwardScope scope = task.unit().backward();
    ScopeGradients<T> parameters(scope);
    if (task.unit().name() == model_.names().head_unit)
      micro.loss(model_.head(load(micro), scale_of<Model>(micro), parameters, scope.input<T>(),
                             scope.input_gradient<T>()));
    else if (task.unit().name() == model_.names().embedding_unit)
      model_.embed_backward(load(micro), parameters, scope.output_gradient<T>());
    else
      model_.block_backward(number_of(task), parameters, scope.input<T>(),
                            scope.output_gradient<T>(), scope.input_gradient<T>());
  }

  zero::Engine& engine_;
  Model& model_;
  std::vector<int> held_before_;  // by the stage's units
};

}  // namespace gpt
