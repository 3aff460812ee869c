// The shared memory of a block at a launch.
#include "cuda_runtime.h"

namespace gpt::cuda {

extern constinit thread_local uint4 shared_memory[];
constinit thread_local uint4 shared_memory[most_shared_memory / sizeof(uint4)];

}  // namespace gpt::cuda
