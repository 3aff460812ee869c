#include <dlfcn.h>

#include "examples/gpt/cpu/gemm.h"

namespace gpt {

// Looks functions up at run time, since the back end's build decides which exist.
void pin_library_threads() {
  for (const char* name :
       {"omp_set_num_threads", "openblas_set_num_threads", "MKL_Set_Num_Threads"})
    if (void* function = dlsym(RTLD_DEFAULT, name)) reinterpret_cast<void (*)(int)>(function)(1);
}

}  // namespace gpt
