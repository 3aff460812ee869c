#include "examples/gpt/cpu/eigen_product.h"

namespace gpt {

void gemm_double(const GemmCall& call) {
  eigen_product<double>(call);
}

}  // namespace gpt
