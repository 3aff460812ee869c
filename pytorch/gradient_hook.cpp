#include "pytorch/gradient_hook.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace zero::pytorch {

namespace {

class GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  using Before = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;
  GradientHook(GradientOwner& owner, int unit, int parameter, Before before)
      : owner_(owner), unit_(unit), parameter_(parameter), before_(std::move(before)) {}
  void operator()(const at::Tensor& tensor) override {
    if (before_) (*before_)(tensor);
    owner_.gradient_arrived(unit_, parameter_, tensor);
  }
  bool is_of(const GradientOwner& owner) const { return &owner_ == &owner; }
  Before take_before() { return std::move(before_); }

 private:
  GradientOwner& owner_;
  int unit_, parameter_;
  Before before_;
};

}  // namespace

void set_gradient_hook(const at::Tensor& tensor, GradientOwner& owner, int unit, int parameter) {
  auto before =
      std::move(torch::autograd::impl::materialize_autograd_meta(tensor)->post_acc_grad_hooks_);
  if (auto* other = dynamic_cast<GradientHook*>(before.get())) before = other->take_before();
  torch::autograd::impl::set_post_acc_grad_hooks(
      tensor, std::make_unique<GradientHook>(owner, unit, parameter, std::move(before)));
}

void remove_gradient_hook(const at::Tensor& tensor, const GradientOwner& owner) {
  const auto* autograd = torch::autograd::impl::get_autograd_meta(tensor);
  if (autograd == nullptr) return;
  auto* hook = dynamic_cast<GradientHook*>(autograd->post_acc_grad_hooks_.get());
  if (hook != nullptr && hook->is_of(owner))
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, hook->take_before());
}

}  // namespace zero::pytorch
