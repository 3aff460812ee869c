// Puts the replacement in place of the library.
#include "examples/gpt/cuda/lt_api.h"

namespace gpt::cuda {

const LtApi& lt_api() {
  static const LtApi api = {cublasLtCreate,
                            cublasLtDestroy,
                            cublasLtMatmulDescCreate,
                            cublasLtMatmulDescDestroy,
                            cublasLtMatmulDescSetAttribute,
                            cublasLtMatrixLayoutCreate,
                            cublasLtMatrixLayoutDestroy,
                            cublasLtMatmulPreferenceCreate,
                            cublasLtMatmulPreferenceDestroy,
                            cublasLtMatmulPreferenceSetAttribute,
                            cublasLtMatmulAlgoGetHeuristic,
                            cublasLtMatmul,
                            cublasLtGetVersion};
  return api;
}

}  // namespace gpt::cuda
