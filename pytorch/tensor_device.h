// The device of a sharded module's tensors: the device of the rank. On a GPU the engine's work is
// ordered on torch's current stream there:
//
//   zero::RuntimeOptions options{.device = "cuda"};
//   options.stream = zero::pytorch::torch_stream(gpu);  // of a device of this rank's number
//   zero::Runtime runtime(argc, argv, options);
//
// The code uses only c10, so that one build works for torch with and without CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include "zero/zero.h"

namespace zero::pytorch {

at::Device tensor_device(const Runtime& runtime);
// Returns the current stream of the calling thread; none for a CPU.
Stream torch_stream(at::Device device);
// Copies contiguous tensors of any dtype, also if torch has no copy_() for the dtype.
void copy_bytes(const at::Tensor& from, const at::Tensor& to);
at::Tensor copy_of(const at::Tensor& contiguous);
// Returns a contiguous tensor over memory that belongs to another object.
at::Tensor tensor_at(const void* memory, at::IntArrayRef sizes, at::ScalarType type,
                     at::Device device);

}  // namespace zero::pytorch
