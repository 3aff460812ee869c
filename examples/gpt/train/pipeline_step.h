// A step of a stage of a pipeline through the engine: opens the scope of each task, takes the
// pointers to parameters and to what units pass on, calls the model.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "examples/gpt/cpu/blocks.h"
#include "examples/gpt/train/training_step.h"
#include "tools/planner/model_shape.h"

namespace gpt {

// The blocks among the units of this rank's stage.
inline int blocks_in_stage(zero::Engine& engine, const PartNames& names) {
  int blocks = 0;
  for (const zero::Unit& unit : engine.units())
    blocks += unit.name() != names.embedding_unit && unit.name() != names.head_unit;
  return blocks;
}

// The part of the model that this rank's stage has.
inline zero::planner::StagePart part_in_stage(zero::Engine& engine, const ModelConfig& model) {
  const PartNames names = names_of(model);
  return {.layers = blocks_in_stage(engine, names),
          .in_flight = engine.micro_batches_in_flight(),
          .head = engine.units().back().name() == names.head_unit};
}

// The activations of the stage's blocks, for all micro-batches in flight.
inline HeldActivations held_in_stage(const zero::planner::StagePart& part,
                                     Activations activations) {
  return {held_layers(activations, part.layers * part.in_flight), false, part.head};
}

template <class Model>
class PipelineStep {
 public:
  using T = typename Model::Element;

  PipelineStep(zero::Engine& engine, Model& model)
      : engine_(engine),
        model_(model),
        first_block_(engine.units().front().name() == model.names().embedding_unit ? 1 : 0),
        blocks_(blocks_in_stage(engine, model.names())) {}

  // `load` returns the micro-batch of a micro step; valid until its next call.
  void run(const std::function<MicroBatch(const zero::MicroStep&)>& load) {
    for (const zero::Task task : engine_.tasks())
      task.is_forward() ? forward(task, load) : backward(task, load);
  }

 private:
  using Load = std::function<MicroBatch(const zero::MicroStep&)>;

  // The number of a block among those of all micro-batches in flight.
  int number_of(const zero::Task& task) const {
    const int place = task.micro_step().index() % engine_.micro_batches_in_flight();
    return place * blocks_ + task.unit().index() - first_block_;
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
  int first_block_, blocks_;
};

}  // namespace gpt
