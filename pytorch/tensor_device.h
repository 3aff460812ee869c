// Where the tensors of a sharded module are: on the device of their rank. On a GPU the engine works
// in the order of torch's current stream there:
//
//   zero::RuntimeOptions options{.device = "cuda"};
//   options.stream = zero::pytorch::torch_stream(gpu);  // of a device of this rank's number
//   zero::Runtime runtime(argc, argv, options);
//
// In terms of c10 alone, so that one build of the sources serves a torch with CUDA and one without.
#pragma once

#include <ATen/core/Tensor.h>

#include "zero/zero.h"

namespace zero::pytorch {

at::Device tensor_device(const Runtime& runtime);
// The current one of the calling thread; no stream for a CPU.
Stream torch_stream(at::Device device);
// Memory that somebody else owns, contiguous.
at::Tensor tensor_at(const void* memory, at::IntArrayRef sizes, at::ScalarType type,
                     at::Device device);

}  // namespace zero::pytorch
