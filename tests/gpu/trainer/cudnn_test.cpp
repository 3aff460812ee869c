// cuDNN's attention without a GPU: cuDNN builds our graphs for GPUs that are described to it, and
// has kernels for them. CUDA's stub of the driver suffices, since nothing runs.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "examples/gpt/cuda/cudnn_attention.h"

namespace {

using namespace gpt;

// A GPU's properties in the format of cuDNN 9.8 to 9.28; they need not be exact.
cuda::DescribedGpu gpu(const char* name, int capability, int processors, int shared_memory) {
  char text[1024];
  std::snprintf(
      text, sizeof text,
      R"({"cudaDeviceId":0,"deviceVer":%d,"driverVer":13000,"runtimeVer":13000,)"
      R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
      R"("regsPerBlock":65536,"multiProcessorCount":%d,"smCountOrigin":0,"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":%d,)"
      R"("oversizedSharedMemoryPerBlock":0,"reservedSharedMemoryPerBlock":1024,)"
      R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
      R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
      R"("smClockRateKHz":1400000,"memClockRateKHz":1600000,"memoryBusWidth":5120,"l2CacheSize":41943040,)"
      R"("totalGlobalMem":85000000000,"deviceName":"%s"})",
      capability * 10, processors, shared_memory, name);
  return {text, capability};
}
const cuda::DescribedGpu ampere = gpu("NVIDIA A100-SXM4-80GB", 80, 108, 166912),
                         hopper = gpu("NVIDIA H100 80GB HBM3", 90, 132, 232448);

struct Heads {
  std::int64_t of_queries, of_keys, channels;
};

cuda::AttentionShape shape(std::int64_t batch, std::int64_t sequence, Heads heads,
                           zero::DType dtype) {
  Dims dims{.batch = batch, .sequence = sequence, .heads = heads.of_queries};
  dims.key_heads = heads.of_keys;
  dims.head_channels = heads.channels;
  return {dims, dtype, {dims.query_channels(), dims.key_channels()}};
}

// GPT-2's queries, keys and values are adjacent in each row.
cuda::AttentionShape side_by_side(cuda::AttentionShape shape) {
  const std::int64_t row = shape.dims.query_channels() + 2 * shape.dims.key_channels();
  shape.distances = {row, row};
  return shape;
}

TEST_CASE("cuDNN takes the attention of GPT-2 and Llama on sm_80 and sm_90") {
  for (const cuda::DescribedGpu& on : {ampere, hopper})
    for (const zero::DType dtype : {zero::DType::bf16, zero::DType::fp16}) {
      CAPTURE(on.capability);
      CHECK(attention_problem(side_by_side(shape(64, 1024, {12, 12, 64}, dtype)), on) == "");
      CHECK(attention_problem(side_by_side(shape(16, 1024, {25, 25, 64}, dtype)), on) == "");
      CHECK(attention_problem(shape(8, 2048, {32, 8, 64}, dtype), on) == "");
      CHECK(attention_problem(shape(3, 77, {6, 2, 128}, dtype), on) == "");
    }
}

TEST_CASE("cuDNN's frontend calls the runtime that the program is linked with") {
  CHECK(attention_problem(shape(8, 2048, {32, 8, 64}, zero::DType::bf16), hopper) == "");
  const std::string other = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
  CHECK(dlopen(other.c_str(), RTLD_NOW | RTLD_NOLOAD) == nullptr);
}

TEST_CASE("shapes that cuDNN does not support are refused with its reason") {
  using zero::DType;
  CHECK(attention_problem(shape(1, 64, {1, 1, 64}, DType::fp32), hopper).find("16-bit") !=
        std::string::npos);
  CHECK(attention_problem(shape(1, 64, {1, 1, 20}, DType::bf16), hopper).find("not of 20") !=
        std::string::npos);
  // The text is cuDNN's own.
  CHECK(attention_problem(shape(1, 64, {3, 2, 64}, DType::bf16), hopper) != "");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string problem =
      attention_problem(shape(1, 64, {1, 1, 64}, zero::DType::bf16), hopper);
  if (problem.find("cannot open shared object file") != std::string::npos ||
      problem.find("json") != std::string::npos) {
    std::printf("skipped: %s\n", problem.c_str());
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
