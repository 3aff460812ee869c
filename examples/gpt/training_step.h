// One micro batch through the engine: opens the scopes, takes the pointers, calls the model. The
// same at every stage.
#pragma once

#include <vector>

#include "examples/gpt/model.h"
#include "zero/zero.h"

namespace gpt {

template <class T>
class TrainingStep {
 public:
  TrainingStep(zero::Engine& engine, Model<T>& model);

  // Returns the mean loss; gradients are those of loss_scale * loss.
  double run(const MicroBatch& batch, float loss_scale);

 private:
  zero::Unit& embedding_;
  zero::Unit& head_;
  std::vector<zero::Unit*> blocks_;
  Model<T>& model_;
};

}  // namespace gpt
