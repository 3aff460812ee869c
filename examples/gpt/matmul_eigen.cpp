// Products by Eigen: always there, and slower than the other back ends.
#include "examples/gpt/eigen_product.h"

namespace gpt {

struct Gemm::Impl {};

Gemm::Gemm() = default;
Gemm::~Gemm() = default;

const char* Gemm::name() {
  return "Eigen";
}

bool Gemm::prepare(const ProductShape&, zero::DType in, zero::DType out) {
  return in == zero::DType::fp32 && out == zero::DType::fp32;
}

void Gemm::run(const GemmCall& call, zero::DType, zero::DType) {
  eigen_product<float>(call);
}

std::int64_t Gemm::scratch_bytes() const {
  return 0;
}

}  // namespace gpt
