// With ZERO_BACKWARD_THREAD=1 in the environment, backward passes run on another thread than the
// caller, as on GPUs.
#include <torch/csrc/autograd/engine.h>

#include <cstdlib>

#include "tests/pytorch/device_thread.h"

namespace {

class DeviceEngine final : public torch::autograd::Engine {
 public:
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    torch::autograd::variable_list gradients;
    const auto run = [&] {
      gradients =
          Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    };
    if (runs_backward_) {
      run();
      return gradients;
    }
    // One for each thread of the program, because ranks are threads, and a rank may wait for
    // another.
    thread_local torch_models::DeviceThread* const device = new torch_models::DeviceThread;
    device->run([&] {
      runs_backward_ = true;
      run();
    });
    return gradients;
  }

 private:
  static thread_local bool runs_backward_;  // on threads of DeviceThread
};
thread_local bool DeviceEngine::runs_backward_ = false;

const bool chosen = [] {
  if (std::getenv("ZERO_BACKWARD_THREAD") == nullptr) return false;
  torch::autograd::set_default_engine_stub([]() -> torch::autograd::Engine& {
    static auto* const engine = new DeviceEngine;
    return *engine;
  });
  return true;
}();

}  // namespace
