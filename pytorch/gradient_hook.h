// The hook by which gradients leave autograd as they arrive. Hooks that the program has set on the
// tensor run first.
#pragma once

#include <ATen/core/Tensor.h>

namespace zero::pytorch {

// The receiver of gradients, of tensors that are numbered by unit and parameter.
class GradientOwner {
 public:
  virtual void gradient_arrived(int unit, int parameter, const at::Tensor& tensor) = 0;

 protected:
  ~GradientOwner() = default;
};

// Replaces the hook of an earlier owner. The owner must outlive the hook.
void set_gradient_hook(const at::Tensor& tensor, GradientOwner& owner, int unit, int parameter);
// Does nothing if another owner has the tensor by now.
void remove_gradient_hook(const at::Tensor& tensor, const GradientOwner& owner);

}  // namespace zero::pytorch
