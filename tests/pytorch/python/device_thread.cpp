// A module for Python: run(function) calls the function on another thread, as autograd does for
// GPUs.
#include <torch/csrc/utils/pybind.h>

#include "tests/pytorch/device_thread.h"

namespace py = pybind11;

PYBIND11_MODULE(device_thread, module) {
  module.def("run", [](const py::function& function) {
    // The thread has a state of Python's as long as it lives, as autograd's threads have.
    static auto* const device = new torch_models::DeviceThread([](const auto& loop) {
      const py::gil_scoped_acquire locked;
      const py::gil_scoped_release unlocked;
      loop();
    });
    py::object result;
    {
      const py::gil_scoped_release unlocked;
      device->run([&] {
        const py::gil_scoped_acquire locked;
        result = function();
      });
    }
    return result;
  });
}
