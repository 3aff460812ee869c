// cuDNN's attention through the graphs of cudnn-frontend. cuDNN is loaded when the first model is
// made on a GPU, so that programs start without it.
#include "examples/gpt/cuda/cudnn_attention.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

// Must be included before the frontend.
#include "examples/gpt/cuda/linked_cudart.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include "examples/gpt/cuda/check.h"
#include "examples/gpt/cuda/device_buffer.h"
#include "zero/base/error.h"

// The frontend reads cuDNN's functions from this handle.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace gpt::cuda {
namespace {

namespace fe = cudnn_frontend;

// cuDNN's deterministic backward on Hopper needs two bytes per score. Since cuDNN 9.25 this
// variable makes the frontend select a slower backward whose workspace grows with the sequence
// alone.
constexpr WorkspaceLimits workspace_limits{std::int64_t{1} << 30, std::int64_t{8} << 30};
WorkspaceLimits limits_of(const AttentionShape& shape) {
  WorkspaceLimits limits = workspace_limits;
  if (const std::int64_t bytes = shape.dims.attention.workspace_bytes; bytes > 0)
    limits.of_samples = bytes;
  return limits;
}
constexpr const char* linear_workspace_variable = "CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT";

enum Uid : std::int64_t { query = 1, key, value, out, log_sums, dout, dquery, dkey, dvalue };

class Refusal : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// cuDNN's first line is the error, the others are about single kernels.
void check_graph(fe::error_t error) {
  if (error.is_good()) return;
  const std::string text = error.get_message(), line = text.substr(0, text.find('\n'));
  throw Refusal(line.empty() ? "cuDNN gives no reason" : line);
}

void* open_cudnn() {
  const std::string library = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Refusal(dlerror());
  fe::cudnn_dlhandle = handle;
  return handle;
}

// Callable on any thread. Throws Refusal if cuDNN is missing.
void load_cudnn() {
  // Static, since ranks may be threads: one rank opens the library, and the others wait.
  [[maybe_unused]] static void* const library = open_cudnn();
}

std::string in_mebibytes(std::int64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

std::string workspace_problem(std::int64_t bytes) {
  return "its workspace for one sample is " + in_mebibytes(bytes) + ", more than " +
         in_mebibytes(workspace_limits.of_one) + "; with cuDNN 9.25 or newer " +
         linear_workspace_variable + "=" + std::to_string(workspace_limits.of_one) +
         " in the environment takes less";
}

// The machine's GPU by a handle, or a described GPU.
struct Target {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<fe::DeviceProperties> properties;
  int capability = 0;
};

class AttentionGraph {
 public:
  AttentionGraph(const AttentionShape& shape, std::int64_t samples, const Target& target)
      : shape_(shape), samples_(samples) {
    graph_
        .set_io_data_type(shape.dtype == zero::DType::bf16 ? fe::DataType_t::BFLOAT16
                                                           : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(target.capability);
    if (target.properties) graph_.set_device_properties(target.properties);
  }

  void describe_forward() {
    auto options = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(true)
                       .set_attn_scale(scale())
                       .set_causal_mask(true);
    const auto [result, sums] =
        graph_.sdpa(queries(Uid::query), keys(Uid::key), keys(Uid::value), options);
    place(*result, Uid::out, shape_.dims.heads, shape_.dims.query_channels());
    sums->set_output(true).set_uid(Uid::log_sums).set_data_type(fe::DataType_t::FLOAT);
  }

  void describe_backward() {
    const std::int64_t heads = shape_.dims.heads, sequence = shape_.dims.sequence,
                       width = shape_.dims.query_channels();
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention_backward")
                       .set_attn_scale(scale())
                       .set_causal_mask(true)
                       .set_deterministic_algorithm(!shape_.dims.attention.any_order);
    const auto sums = graph_.tensor(fe::graph::Tensor_attributes()
                                        .set_uid(Uid::log_sums)
                                        .set_dim({samples_, heads, sequence, 1})
                                        .set_stride({heads * sequence, sequence, 1, 1})
                                        .set_data_type(fe::DataType_t::FLOAT));
    const auto [dq, dk, dv] = graph_.sdpa_backward(queries(Uid::query), keys(Uid::key),
                                                   keys(Uid::value), input(Uid::out, heads, width),
                                                   input(Uid::dout, heads, width), sums, options);
    place(*dq, Uid::dquery, heads, shape_.distances.query);
    place(*dk, Uid::dkey, shape_.dims.key_heads, shape_.distances.key);
    place(*dv, Uid::dvalue, shape_.dims.key_heads, shape_.distances.key);
  }

  // Selects the heuristic's choices that the target supports; all are deterministic unless any
  // order of sums is allowed.
  void plan(const Target& target) {
    check_graph(graph_.validate());
    check_graph(graph_.build_operation_graph(target.handle));
    check_graph(graph_.create_execution_plans({fe::HeurMode_t::A}));
    if (!shape_.dims.attention.any_order)
      graph_.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
    check_graph(graph_.check_support());
  }

  // Loads the first choice; needs the GPU.
  void build() { check_graph(graph_.build_plans()); }
  std::int64_t workspace() const { return graph_.get_workspace_size(); }

  void run(cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& pointers,
           void* workspace) {
    fe::error_t error = graph_.execute(handle, pointers, workspace);
    if (error.is_bad()) throw zero::Error("cuDNN's attention: " + error.get_message());
  }

 private:
  using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

  float scale() const {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.dims.head_channels)));
  }
  std::vector<std::int64_t> sizes(std::int64_t heads) const {
    return {samples_, heads, shape_.dims.sequence, shape_.dims.head_channels};
  }
  std::vector<std::int64_t> strides(std::int64_t distance) const {
    return {shape_.dims.sequence * distance, shape_.dims.head_channels, distance, 1};
  }
  Tensor input(Uid uid, std::int64_t heads, std::int64_t distance) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_dim(sizes(heads))
                             .set_stride(strides(distance)));
  }
  Tensor queries(Uid uid) { return input(uid, shape_.dims.heads, shape_.distances.query); }
  Tensor keys(Uid uid) { return input(uid, shape_.dims.key_heads, shape_.distances.key); }
  void place(fe::graph::Tensor_attributes& result, Uid uid, std::int64_t heads,
             std::int64_t distance) const {
    result.set_output(true).set_uid(uid).set_dim(sizes(heads)).set_stride(strides(distance));
  }

  AttentionShape shape_;
  std::int64_t samples_;
  fe::graph::Graph graph_;
};

struct Graphs {
  Graphs(const AttentionShape& shape, std::int64_t samples, const Target& target)
      : forward(shape, samples, target), backward(shape, samples, target) {
    forward.describe_forward();
    backward.describe_backward();
    forward.plan(target);
    backward.plan(target);
  }
  void build() {
    forward.build();
    backward.build();
  }
  std::int64_t workspace() const { return std::max(forward.workspace(), backward.workspace()); }

  AttentionGraph forward, backward;
};

class Handle {
 public:
  explicit Handle(cudaStream_t stream) {
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS)
      throw Refusal("cudnnCreate failed");
    if (fe::detail::set_stream(handle_, stream) != CUDNN_STATUS_SUCCESS)
      throw Refusal("cudnnSetStream failed");
  }
  ~Handle() { static_cast<void>(fe::detail::destroy_handle(handle_)); }
  Handle(const Handle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

int capability_of_current() {
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

// Throws Refusal if cuDNN has no kernels.
class CudnnAttention final : public AttentionKernels {
 public:
  CudnnAttention(const AttentionShape& shape, cudaStream_t stream) : handle_(stream) {
    const Target target{handle_.get(), nullptr, capability_of_current()};
    samples_ = samples_within(limits_of(shape), shape.dims.batch, [&](std::int64_t samples) {
      graphs_ = std::make_unique<Graphs>(shape, samples, target);
      graphs_->build();
      return graphs_->workspace();
    });
    if (samples_ == 0) throw Refusal(workspace_problem(graphs_->workspace()));
    // The log sums of a part must start at an address aligned to 16 bytes, like all tensors.
    if (samples_ < shape.dims.batch && samples_ * shape.dims.heads * shape.dims.sequence % 4 != 0)
      throw Refusal("the batch would have to be cut at an odd address");
    workspace_ = DeviceBuffer<unsigned char>(graphs_->workspace());
  }

  std::int64_t samples() const override { return samples_; }
  void forward(const ForwardPointers& p) override {
    pointers_ = {{Uid::query, const_cast<void*>(p.query)},
                 {Uid::key, const_cast<void*>(p.key)},
                 {Uid::value, const_cast<void*>(p.value)},
                 {Uid::out, p.out},
                 {Uid::log_sums, p.log_sums}};
    graphs_->forward.run(handle_.get(), pointers_, workspace_.data());
  }
  void backward(const BackwardPointers& p) override {
    pointers_ = {{Uid::query, const_cast<void*>(p.query)},
                 {Uid::key, const_cast<void*>(p.key)},
                 {Uid::value, const_cast<void*>(p.value)},
                 {Uid::out, const_cast<void*>(p.out)},
                 {Uid::dout, const_cast<void*>(p.dout)},
                 {Uid::log_sums, const_cast<float*>(p.log_sums)},
                 {Uid::dquery, p.dquery},
                 {Uid::dkey, p.dkey},
                 {Uid::dvalue, p.dvalue}};
    graphs_->backward.run(handle_.get(), pointers_, workspace_.data());
  }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(workspace_.bytes()); }

 private:
  Handle handle_;
  std::unique_ptr<Graphs> graphs_;
  std::int64_t samples_ = 0;
  std::unordered_map<std::int64_t, void*> pointers_;
  DeviceBuffer<unsigned char> workspace_;
};

// Returns a problem that is known without calling cuDNN; if empty, cuDNN decides.
std::string shape_problem(const AttentionShape& shape) {
  if (shape.dtype == zero::DType::fp32) return "cuDNN's are of 16-bit types alone";
  if (shape.dims.head_channels % 8 != 0)
    return "cuDNN's take heads of a multiple of 8 channels, not of " +
           std::to_string(shape.dims.head_channels);
  return "";
}

}  // namespace

AttentionChoice choose_attention(const AttentionShape& shape, cudaStream_t stream) {
  std::string problem = shape_problem(shape);
  if (problem.empty()) {
    try {
      load_cudnn();
      auto kernels = std::make_unique<CudnnAttention>(shape, stream);
      std::string said = "cuDNN " + std::to_string(fe::detail::get_backend_version());
      if (kernels->samples() < shape.dims.batch)
        said += ", " + std::to_string(kernels->samples()) + " samples at once";
      if (shape.dims.attention.any_order) said += ", backward with sums in any order";
      if (kernels->bytes() > workspace_limits.of_samples)
        said += ", with a workspace of " + in_mebibytes(kernels->bytes()) + " for each";
      return {std::move(kernels), said};
    } catch (const zero::MemoryError&) {
      throw;
    } catch (const std::exception& error) {
      problem = error.what();
    }
  }
  if (shape.dtype != zero::DType::fp32)
    std::fprintf(stderr,
                 "train_gpt: WARNING: attention runs on our own kernels, 15 to 20 times as slow "
                 "as cuDNN's: %s\n",
                 problem.c_str());
  return {nullptr, "our own kernels: " + problem};
}

std::string attention_problem(const AttentionShape& shape, const DescribedGpu& gpu) {
  const std::string known = shape_problem(shape);
  if (!known.empty()) return known;
  try {
    load_cudnn();
    auto properties = std::make_shared<fe::DeviceProperties>();
    check_graph(properties->deserialize({gpu.properties.begin(), gpu.properties.end()}));
    const Graphs graphs(shape, shape.dims.batch, {nullptr, properties, gpu.capability});
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "";
}

}  // namespace gpt::cuda
