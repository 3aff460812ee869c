// One training step of a model with the unit "a" and its parameter "w", on the replacement of CUDA.
#pragma once

#include "zero/zero.h"

namespace gpu_on_host {

// Accesses the replacement's memory directly, since it is the host's.
inline zero::StepTicket train_step(zero::Engine& engine) {
  for (zero::MicroStep micro : engine.micro_steps()) {
    { auto scope = engine.unit("a").forward(); }
    auto scope = engine.unit("a").backward();
    scope.grad<float>("w")[0] += 1;
    micro.loss(0.5);
  }
  return engine.step();
}

}  // namespace gpu_on_host
