// Products by Eigen: always available, and slower than the other back ends.
#include "examples/gpt/cpu/eigen_product.h"

namespace gpt {

struct Gemm::Impl {};

Gemm::Gemm() = default;
Gemm::~Gemm() = default;

const char* Gemm::name() {
  return "Eigen";
}

// Names the build's instruction set, because Eigen's kernels are chosen at compile time.
std::string Gemm::version() {
  return "Eigen " + std::to_string(EIGEN_WORLD_VERSION) + "." +
         std::to_string(EIGEN_MAJOR_VERSION) + "." + std::to_string(EIGEN_MINOR_VERSION) + " for " +
         Eigen::SimdInstructionSetsInUse();
}

std::int64_t Gemm::row_distance(std::int64_t columns, zero::DType) {
  return at_cache_lines(columns);
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
