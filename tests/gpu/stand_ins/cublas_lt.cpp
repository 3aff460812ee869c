#include <algorithm>
#include <cmath>
#include <cstring>

#include "cublasLt.h"
#include "zero/base/dtype.h"

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* before = nullptr;
  std::int64_t before_distance = 0;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::int64_t rows, columns, distance;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = ~0u;
};

namespace {

constexpr std::uint64_t only_algorithm = 0x5a;
constexpr int choices = 3;

std::int64_t rows_of(const cublasLtMatrixLayoutOpaque_t& layout, cublasOperation_t operation) {
  return operation == CUBLAS_OP_N ? layout.rows : layout.columns;
}
std::int64_t columns_of(const cublasLtMatrixLayoutOpaque_t& layout, cublasOperation_t operation) {
  return operation == CUBLAS_OP_N ? layout.columns : layout.rows;
}

float load(const void* data, cudaDataType_t type, std::int64_t at) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  if (type == CUDA_R_16BF) return zero::to_float(static_cast<const zero::bf16*>(data)[at]);
  return zero::to_float(static_cast<const zero::fp16*>(data)[at]);
}

void store(float value, void* data, cudaDataType_t type, std::int64_t at) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[at] = value;
  else if (type == CUDA_R_16BF)
    static_cast<zero::bf16*>(data)[at] = zero::from_float<zero::bf16>(value);
  else
    static_cast<zero::fp16*>(data)[at] = zero::from_float<zero::fp16>(value);
}

// Returns op(layout)[row, column], column-major.
float element(const void* data, const cublasLtMatrixLayoutOpaque_t& layout,
              cublasOperation_t operation, std::int64_t row, std::int64_t column) {
  const std::int64_t at =
      operation == CUBLAS_OP_N ? row + column * layout.distance : column + row * layout.distance;
  return load(data, layout.type, at);
}

bool fits(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
          const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& d) {
  return rows_of(a, desc.transpose_a) == d.rows && columns_of(b, desc.transpose_b) == d.columns &&
         columns_of(a, desc.transpose_a) == rows_of(b, desc.transpose_b) && a.type == b.type;
}

bool has_bias(const cublasLtMatmulDescOpaque_t& desc) {
  return desc.epilogue == CUBLASLT_EPILOGUE_BIAS ||
         desc.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool has_gelu(const cublasLtMatmulDescOpaque_t& desc) {
  return desc.epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
         desc.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool has_matrix(const cublasLtMatmulDescOpaque_t& desc) {
  return has_gelu(desc) || desc.epilogue == CUBLASLT_EPILOGUE_DGELU;
}

double tanh_of_gelu(double x) {
  return std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
}
double gelu(double x) {
  return 0.5 * x * (1 + tanh_of_gelu(x));
}
double gelu_slope(double x) {
  const double t = tanh_of_gelu(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

bool aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 256 == 0;
}

}  // namespace

CublasLtOnHost cublas_lt_on_host;

std::size_t cublasLtGetVersion() {
  return cublas_lt_on_host.version;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                                        cudaDataType_t) {
  *desc = new cublasLtMatmulDescOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      std::memcpy(&desc->transpose_a, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      std::memcpy(&desc->transpose_b, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      std::memcpy(&desc->epilogue, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      std::memcpy(&desc->bias, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      std::memcpy(&desc->before, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      std::memcpy(&desc->before_distance, value, bytes);
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t distance) {
  if (distance < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayoutOpaque_t{type, static_cast<std::int64_t>(rows),
                                             static_cast<std::int64_t>(columns), distance};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    std::memcpy(&preference->workspace, value, bytes);
  else
    std::memcpy(&preference->reductions, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  // Schemes without 16-bit parts, since split sums would depend on the split.
  constexpr std::uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  // Checks the alignment of matrices that an epilogue reads and writes.
  if ((has_bias(*desc) && desc->bias == nullptr) || (has_matrix(*desc) && !desc->before))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (has_bias(*desc) && !cublas_lt_on_host.has_bias) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has_matrix(*desc) && (desc->before_distance % 8 != 0 || desc->before_distance < d->rows))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!fits(*desc, *a, *b, *d) || preference->workspace == 0 ||
      preference->reductions != reductions)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (*found = 0; *found < std::min(wanted, choices); ++*found)
    results[*found] = {
        {{only_algorithm, static_cast<std::uint64_t>(*found)}}, 0, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t,
                              cudaStream_t) {
  ++cublas_lt_on_host.products;
  for (const cublasLtMatrixLayout_t layout : {a_layout, b_layout, d_layout})
    if (layout->rows % 8 != 0) {
      ++cublas_lt_on_host.uneven;
      break;
    }
  if (algorithm->data[1] < static_cast<std::uint64_t>(cublas_lt_on_host.refused))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const float factor = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
  if (!fits(*desc, *a_layout, *b_layout, *d_layout) || algorithm->data[0] != only_algorithm ||
      !aligned(a) || !aligned(b) || !aligned(c) || !aligned(d) || !aligned(workspace) ||
      (has_matrix(*desc) && !aligned(desc->before)))
    return CUBLAS_STATUS_INVALID_VALUE;
  cublas_lt_on_host.last = algorithm->data[1];
  pass_time(cublas_lt_on_host.times[algorithm->data[1]]);
  const std::int64_t inner = columns_of(*a_layout, desc->transpose_a);
  const cudaDataType_t type = d_layout->type;
  for (std::int64_t column = 0; column < d_layout->columns; ++column)
    for (std::int64_t row = 0; row < d_layout->rows; ++row) {
      float sum = 0;
      for (std::int64_t k = 0; k < inner; ++k)
        sum += element(a, *a_layout, desc->transpose_a, row, k) *
               element(b, *b_layout, desc->transpose_b, k, column);
      const std::int64_t at = row + column * d_layout->distance;
      sum *= factor;
      if (kept != 0) sum += kept * load(c, type, at);
      if (has_bias(*desc)) sum += load(desc->bias, type, row);
      const std::int64_t beside = row + column * desc->before_distance;
      if (has_gelu(*desc)) {
        store(sum, desc->before, type, beside);
        sum = static_cast<float>(gelu(sum));
      }
      if (desc->epilogue == CUBLASLT_EPILOGUE_DGELU)
        sum *= static_cast<float>(gelu_slope(load(desc->before, type, beside)));
      store(sum, d, type, at);
    }
  return CUBLAS_STATUS_SUCCESS;
}
