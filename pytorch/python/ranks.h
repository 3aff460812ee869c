// The ranks of a job for Python. Numbers and exchanges are those of all ranks; with a pipeline its
// data ranks have numbers of their own.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <pybind11/pybind11.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pytorch/store_rendezvous.h"
#include "pytorch/tensor_device.h"
#include "zero/zero.h"

namespace zero::pytorch {

class Ranks {
 public:
  Ranks(std::vector<std::string> arguments, const std::string& device,
        std::shared_ptr<StoreRendezvous> rendezvous)
      : arguments_(std::move(arguments)) {
    for (std::string& argument : arguments_) pointers_.push_back(argument.data());
    pointers_.push_back(nullptr);
    int count = static_cast<int>(arguments_.size());
    char** values = pointers_.data();
    RuntimeOptions options;
    options.device = device;
    options.rendezvous = std::move(rendezvous);
    options.catch_signals = false;  // until a parameter is trainable
    // As many threads as torch has if OMP_NUM_THREADS is set, else one per core of this rank.
    if (std::getenv("OMP_NUM_THREADS") != nullptr) options.threads = at::get_num_threads();
    if (device == "cuda") options.stream = torch_stream(at::Device(at::kCUDA, -1));
    runtime_ = std::make_unique<Runtime>(count, values, options);
    at::set_num_threads(runtime_->threads());
  }

  Runtime& runtime() {
    if (!runtime_) throw UsageError("the ranks have ended");
    return *runtime_;
  }
  void end() { runtime_.reset(); }
  // The sum is over all ranks, those of all stages of a pipeline too.
  double sum(double value) { return runtime().sum(value, Over::all_ranks); }
  void broadcast(const at::Tensor& tensor, int root) {
    const at::Tensor on_host = tensor.to(at::kCPU);
    runtime().broadcast({static_cast<std::byte*>(on_host.mutable_data_ptr()), on_host.nbytes()},
                        root, Over::all_ranks);
    if (!tensor.is_cpu()) tensor.copy_(on_host);
  }

 private:
  std::vector<std::string> arguments_;
  std::vector<char*> pointers_;
  std::unique_ptr<Runtime> runtime_;
};

void declare_ranks(pybind11::module_& module);

}  // namespace zero::pytorch
