#include <dlfcn.h>

#include "examples/gpt/gemm.h"

namespace gpt {

// Looked up at run time: which of them exists depends on how the back end was built.
void pin_library_threads() {
  for (const char* name :
       {"omp_set_num_threads", "openblas_set_num_threads", "MKL_Set_Num_Threads"})
    if (void* function = dlsym(RTLD_DEFAULT, name)) reinterpret_cast<void (*)(int)>(function)(1);
}

}  // namespace gpt
