#include "examples/gpt/cuda/device_matmul.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <sstream>
#include <string>

#include "examples/gpt/cuda/lt_api.h"
#include "zero/base/error.h"

namespace gpt::cuda {
namespace {

// NVIDIA's recommendation for Hopper; fixed, since choices depend on it.
constexpr std::int64_t workspace_bytes = std::int64_t{32} << 20;
// Algorithms that a product may fall back to.
constexpr int most_choices = 8;

void check_lt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text = std::string(call) + " returned cublasStatus_t " + std::to_string(status);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw zero::MemoryError(text);
  throw zero::Error(text);
}

// Returns whether the product has not begun, so that another algorithm may work.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

// Number of choices that are timed, and of runs of each; the best time counts.
constexpr std::size_t timed_choices = 4;
constexpr int timed_runs = 3;

using Algorithm = ProductChoices::mapped_type;

Algorithm described(const cublasLtMatmulAlgo_t& algorithm) {
  return std::to_array(algorithm.data);
}

// A point in the work of a stream, with the time.
class TimedEvent {
 public:
  TimedEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "cudaEventCreate"); }
  ~TimedEvent() {
    if (cudaEventDestroy(event_) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }
  TimedEvent(const TimedEvent&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  // Returns milliseconds; blocks until this event is reached.
  float since(const TimedEvent& start) const {
    float milliseconds = 0;
    waits().await(event_, "a matrix product whose time is taken");
    check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class NoAlgorithm : public zero::Error {
  using zero::Error::Error;
};

// An aligned address that is never read, since the heuristic may refuse a product without an
// address, and choose by its alignment.
const void* const some_address = reinterpret_cast<const void*>(std::uintptr_t{256});

cublasLtEpilogue_t epilogue_of(Epilogue epilogue, bool bias) {
  if (epilogue == Epilogue::gelu_gradient) return CUBLASLT_EPILOGUE_DGELU;
  if (epilogue == Epilogue::gelu)
    return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

cudaDataType_t data_type(zero::DType dtype) {
  return dtype == zero::DType::fp32   ? CUDA_R_32F
         : dtype == zero::DType::bf16 ? CUDA_R_16BF
                                      : CUDA_R_16F;
}

// Owns an object of cuBLASLt.
template <class Object>
class Owned {
 public:
  using Destroy = cublasStatus_t (*)(Object);
  Owned(Object object, Destroy destroy) : object_(object), destroy_(destroy) {}
  Owned(const Owned&) = delete;
  ~Owned() { static_cast<void>(destroy_(object_)); }
  Object get() const { return object_; }

 private:
  Object object_;
  Destroy destroy_;
};

cublasLtMatmulDesc_t make_desc() {
  cublasLtMatmulDesc_t desc = nullptr;
  check_lt(lt_api().desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  return desc;
}

// cuBLASLt's matrices are column-major, so a row-major matrix is passed as its transpose.
cublasLtMatrixLayout_t make_layout(zero::DType dtype, std::int64_t rows, std::int64_t columns,
                                   std::int64_t distance) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_lt(lt_api().layout_create(&layout, data_type(dtype), static_cast<std::uint64_t>(columns),
                                  static_cast<std::uint64_t>(rows), distance),
           "cublasLtMatrixLayoutCreate");
  return layout;
}

cublasLtMatmulPreference_t make_preference() {
  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(lt_api().preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  return preference;
}

template <class Value>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check_lt(lt_api().desc_set(desc, attribute, &value, sizeof value),
           "cublasLtMatmulDescSetAttribute");
}

template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value) {
  check_lt(lt_api().preference_set(preference, attribute, &value, sizeof value),
           "cublasLtMatmulPreferenceSetAttribute");
}

std::string text_of(const ProductShape& s, ProductTypes types) {
  return std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) + " of " +
         name_of(types.in) + " into " + name_of(types.out);
}

}  // namespace

struct DeviceMatmul::Handle {
  Handle() { check_lt(lt_api().create(&lt), "cublasLtCreate"); }
  ~Handle() { static_cast<void>(lt_api().destroy(lt)); }
  Handle(const Handle&) = delete;

  cublasLtHandle_t lt = nullptr;
};

// C^T = op(B)^T op(A)^T: cuBLASLt's A is our B.
class DeviceMatmul::Plan {
 public:
  Plan(const Handle& handle, const ProductShape& shape, ProductTypes types)
      : shape_(shape),
        types_(types),
        desc_(make_desc(), lt_api().desc_destroy),
        first_(make_layout(types.in, shape.transpose_b ? shape.n : shape.k,
                           shape.transpose_b ? shape.k : shape.n, shape.ldb),
               lt_api().layout_destroy),
        second_(make_layout(types.in, shape.transpose_a ? shape.k : shape.m,
                            shape.transpose_a ? shape.m : shape.k, shape.lda),
                lt_api().layout_destroy),
        result_(make_layout(types.out, shape.m, shape.n, shape.ldc), lt_api().layout_destroy) {
    const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(desc_.get(), CUBLASLT_MATMUL_DESC_TRANSA, operation(shape.transpose_b));
    set(desc_.get(), CUBLASLT_MATMUL_DESC_TRANSB, operation(shape.transpose_a));
    set(desc_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(types.epilogue, shape.bias));
    if (shape.bias) set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, some_address);
    if (types.epilogue != Epilogue::none) {
      set(desc_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.ldc);
      set(desc_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, some_address);
    }
    choose(handle);
  }

  bool is_for(const ProductShape& shape, ProductTypes types) const {
    return shape == shape_ && types == types_;
  }

  void run(const Handle& handle, const DeviceProduct& p, DeviceBuffer<unsigned char>& workspace,
           cudaStream_t stream) const {
    point(p);
    const auto run_by = [&](const cublasLtMatmulAlgo_t& algorithm) {
      return call(handle, p, algorithm, workspace, stream);
    };
    const cublasStatus_t first = run_by(choices_.front());
    cublasStatus_t status = first;
    while (!has_run_ && is_refusal(status) && choices_.size() > 1) {
      choices_.erase(choices_.begin());
      status = run_by(choices_.front());
    }
    if (status != CUBLAS_STATUS_SUCCESS) check_lt(first, "cublasLtMatmul");
    has_run_ = true;
  }

  std::string key() const {
    const ProductShape& s = shape_;
    std::ostringstream key;
    key << s.m << 'x' << s.n << 'x' << s.k << ':' << s.lda << ',' << s.ldb << ',' << s.ldc << ':'
        << (s.transpose_a ? "T" : "N") << (s.transpose_b ? "T" : "N") << (s.bias ? "b" : "")
        << (s.accumulate ? "+" : "") << ':' << name_of(types_.in) << ',' << name_of(types_.out)
        << ',' << static_cast<int>(types_.epilogue);
    return key.str();
  }

  // Times with operands of the product's size and any contents.
  Algorithm fastest(const Handle& handle, DeviceBuffer<unsigned char>& workspace,
                    cudaStream_t stream) const {
    const std::int64_t in = zero::size_of(types_.in), out = zero::size_of(types_.out);
    DeviceBuffer<unsigned char> a((shape_.transpose_a ? shape_.k : shape_.m) * shape_.lda * in),
        b((shape_.transpose_b ? shape_.n : shape_.k) * shape_.ldb * in),
        c(shape_.m * shape_.ldc * out), before(types_.epilogue == Epilogue::none ? 0 : c.size()),
        bias(shape_.bias ? shape_.n * in : 0);
    // Filled with small numbers of every type, since zeros would need less power than a model's
    // values.
    for (DeviceBuffer<unsigned char>* buffer : {&a, &b, &c, &before, &bias})
      if (buffer->size() > 0)
        check(cudaMemsetAsync(buffer->data(), 0x2c, buffer->bytes(), stream), "cudaMemsetAsync");
    const DeviceProduct p{a.data(), b.data(), c.data(), bias.data(), c.data(), before.data()};
    point(p);
    std::size_t best = 0;
    float least = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < std::min(timed_choices, choices_.size()); ++i) {
      TimedEvent start, end;
      for (int run = 0; run <= timed_runs; ++run) {  // the first run loads the kernel
        start.record(stream);
        if (call(handle, p, choices_[i], workspace, stream) != CUBLAS_STATUS_SUCCESS) break;
        end.record(stream);
        const float time = end.since(start);
        if (run == 0 || time >= least) continue;
        least = time;
        best = i;
      }
    }
    waits().await(stream, "the matrix products whose time is taken");
    return described(choices_[best]);
  }

  void take(const Algorithm& algorithm) const {
    const auto found = std::find_if(choices_.begin(), choices_.end(),
                                    [&](const auto& own) { return described(own) == algorithm; });
    if (found != choices_.end()) std::rotate(choices_.begin(), found, found + 1);
  }

 private:
  // Sets the pointers that the epilogue reads and writes.
  void point(const DeviceProduct& p) const {
    if (shape_.bias) set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (types_.epilogue != Epilogue::none)
      set(desc_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.before);
  }

  cublasStatus_t call(const Handle& handle, const DeviceProduct& p,
                      const cublasLtMatmulAlgo_t& algorithm, DeviceBuffer<unsigned char>& workspace,
                      cudaStream_t stream) const {
    const float one = 1, factor = shape_.accumulate ? 1 : 0;
    return lt_api().matmul(handle.lt, desc_.get(), &one, p.b, first_.get(), p.a, second_.get(),
                           &factor, shape_.accumulate ? p.addend : p.c, result_.get(), p.c,
                           result_.get(), &algorithm, workspace.data(), workspace.bytes(), stream);
  }

  void choose(const Handle& handle) {
    const Owned<cublasLtMatmulPreference_t> preference(make_preference(),
                                                       lt_api().preference_destroy);
    set(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<std::uint64_t>(workspace_bytes));
    set(preference.get(), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                                   CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    std::array<cublasLtMatmulHeuristicResult_t, most_choices> results{};
    int found = 0;
    const cublasStatus_t status =
        lt_api().heuristic(handle.lt, desc_.get(), first_.get(), second_.get(), result_.get(),
                           result_.get(), preference.get(), most_choices, results.data(), &found);
    for (const cublasLtMatmulHeuristicResult_t& result :
         std::span(results.data(), std::size_t(found)))
      if (result.state == CUBLAS_STATUS_SUCCESS) choices_.push_back(result.algo);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || choices_.empty())
      throw NoAlgorithm("cuBLASLt has no algorithm for the product " + text_of(shape_, types_));
    check_lt(status, "cublasLtMatmulAlgoGetHeuristic");
  }

  ProductShape shape_;
  ProductTypes types_;
  Owned<cublasLtMatmulDesc_t> desc_;
  Owned<cublasLtMatrixLayout_t> first_, second_, result_;
  // In the heuristic's order, without those that were refused in the first run.
  mutable std::vector<cublasLtMatmulAlgo_t> choices_;
  mutable bool has_run_ = false;
};

DeviceMatmul::DeviceMatmul(cudaStream_t stream)
    : stream_(stream), handle_(std::make_unique<Handle>()), workspace_(workspace_bytes) {}

DeviceMatmul::~DeviceMatmul() = default;

const DeviceMatmul::Plan& DeviceMatmul::prepare(const ProductShape& shape, ProductTypes types) {
  for (const auto& plan : plans_)
    if (plan->is_for(shape, types)) return *plan;
  plans_.push_back(std::make_unique<Plan>(*handle_, shape, types));
  return *plans_.back();
}

const DeviceMatmul::Plan* DeviceMatmul::prepare_if_there(const ProductShape& shape,
                                                         ProductTypes types) {
  try {
    return &prepare(shape, types);
  } catch (const NoAlgorithm&) {
    return nullptr;
  }
}

void DeviceMatmul::run(const Plan& plan, const DeviceProduct& product) {
  plan.run(*handle_, product, workspace_, stream_);
}

ProductChoices DeviceMatmul::time_choices(const ProductChoices& known) {
  ProductChoices choices = known;
  for (const auto& plan : plans_) {
    if (choices.contains(plan->key())) continue;
    try {
      choices.emplace(plan->key(), plan->fastest(*handle_, workspace_, stream_));
    } catch (const zero::MemoryError&) {
      continue;
    }
  }
  return choices;
}

void DeviceMatmul::take_choices(const ProductChoices& choices) {
  for (const auto& plan : plans_) {
    const auto choice = choices.find(plan->key());
    if (choice != choices.end()) plan->take(choice->second);
  }
}

std::string DeviceMatmul::version() {
  int device = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return "cuBLASLt " + std::to_string(lt_api().version()) + " on " + properties.name;
}

}  // namespace gpt::cuda
