// The parameters of a part of the model, by the names that its unit declares, while in memory:
// those of an engine's scope (training_step.h), or a test's arrays.
#pragma once

#include <string_view>

#include "zero/zero.h"

namespace gpt {

template <class T>
class ParameterValues {
 public:
  virtual const T* value(std::string_view name) const = 0;

 protected:
  ~ParameterValues() = default;
};

// Parameters with gradients: kernels add to grad(), and write target() as its beta requires.
template <class T>
class ParameterGradients : public ParameterValues<T> {
 public:
  virtual T* grad(std::string_view name) = 0;
  virtual zero::GradTarget<T> target(std::string_view name) = 0;

 protected:
  ~ParameterGradients() = default;
};

}  // namespace gpt
