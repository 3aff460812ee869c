// Products by a BLAS, through its Fortran interface. C is computed transposed, since the interface
// is column-major.
#include <fstream>
#include <limits>
#include <stdexcept>

#include "examples/gpt/cpu/gemm.h"

extern "C" void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
                       const int* k, const float* alpha, const float* a, const int* lda,
                       const float* b, const int* ldb, const float* beta, float* c, const int* ldc);

namespace gpt {
namespace {

int to_int(std::int64_t value) {
  if (value > std::numeric_limits<int>::max())
    throw std::length_error("a matrix product is too large for this BLAS's 32-bit sizes");
  return static_cast<int>(value);
}

}  // namespace

struct Gemm::Impl {};

Gemm::Gemm() = default;
Gemm::~Gemm() = default;

const char* Gemm::name() {
  return "BLAS";
}

// Includes the CPU, since a tuned BLAS chooses kernels by CPU.
std::string Gemm::version() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return "BLAS on" + line.substr(line.find(':') + 1);
  return "BLAS";
}

std::int64_t Gemm::row_distance(std::int64_t columns, zero::DType) {
  return at_cache_lines(columns);
}

bool Gemm::prepare(const ProductShape&, zero::DType in, zero::DType out) {
  return in == zero::DType::fp32 && out == zero::DType::fp32;
}

void Gemm::run(const GemmCall& call, zero::DType, zero::DType) {
  const ProductShape& s = call.shape;
  auto* c = static_cast<float*>(call.c);
  const auto* bias = static_cast<const float*>(call.bias);
  if (s.bias)
    for (std::int64_t r = 0; r < s.m; ++r)
      for (std::int64_t j = 0; j < s.n; ++j)
        c[r * s.ldc + j] = s.accumulate ? c[r * s.ldc + j] + bias[j] : bias[j];
  const float alpha = 1, beta = s.bias || s.accumulate ? 1 : 0;
  const int m = to_int(s.m), n = to_int(s.n), k = to_int(s.k);
  const int lda = to_int(s.lda), ldb = to_int(s.ldb), ldc = to_int(s.ldc);
  sgemm_(s.transpose_b ? "T" : "N", s.transpose_a ? "T" : "N", &n, &m, &k, &alpha,
         static_cast<const float*>(call.b), &ldb, static_cast<const float*>(call.a), &lda, &beta, c,
         &ldc);
}

std::int64_t Gemm::scratch_bytes() const {
  return 0;
}

}  // namespace gpt
