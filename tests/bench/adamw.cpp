// AdamW over 33.5 M parameters against a read-modify-write loop over the same number of bytes that
// it keeps in place, interleaved: the loop is the limit set by memory, and the update should reach
// 0.9 of it.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "optim/gradient_norm.h"
#include "tests/support/span_optimizer.h"
#include "zero/base/simd.h"

namespace {

using namespace zero;

constexpr std::int64_t parameters = std::int64_t{1} << 25;

// Memory that is touched at the start, in huge pages if the system has them.
class Array {
 public:
  explicit Array(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::fill_n(static_cast<unsigned char*>(data_), bytes_, static_cast<unsigned char>(0));
  }
  ~Array() { munmap(data_, bytes_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  template <class T = float>
  T* at(std::int64_t index) const {
    return static_cast<T*>(data_) + index;
  }

 private:
  std::size_t bytes_;
  void* data_;
};

struct Arrays {
  Array gradient{parameters * 4}, gradient_bf16{parameters * 2}, master{parameters * 4},
      copy{parameters * 2};
  Array first{parameters * 4}, second{parameters * 4};
};

Arrays& arrays() {
  static Arrays all;
  return all;
}

const void* gradient_of(DType dtype, std::int64_t begin) {
  if (dtype == DType::bf16) return arrays().gradient_bf16.at<bf16>(begin);
  return arrays().gradient.at(begin);
}

// The part of one thread.
struct Part {
  explicit Part(const benchmark::State& state)
      : count(parameters / state.threads()), begin(count * state.thread_index()) {}
  std::int64_t count, begin;
};

void count_bytes(benchmark::State& state, std::int64_t bytes_per_element) {
  const Part part(state);
  state.SetBytesProcessed(state.iterations() * part.count * bytes_per_element);
}

void read_modify_write(benchmark::State& state) {
  const Part part(state);
  float* data[] = {arrays().master.at(part.begin), arrays().first.at(part.begin),
                   arrays().second.at(part.begin)};
  for (auto _ : state) {
    for (float* x : data)
      for (std::int64_t i = 0; i < part.count; ++i) x[i] *= 1.0001f;
    benchmark::ClobberMemory();
  }
  count_bytes(state, 24);
}

void adamw(benchmark::State& state, DType gradient, bool copies) {
  const Part part(state);
  const auto optimizer = optim::create_optimizer({});
  float* moments[] = {arrays().first.at(part.begin), arrays().second.at(part.begin)};
  const optim::UpdateSpans spans{.count = part.count,
                                 .gradient = gradient_of(gradient, part.begin),
                                 .gradient_dtype = gradient,
                                 .master = arrays().master.at(part.begin),
                                 .state = moments,
                                 .parameter = copies ? arrays().copy.at<bf16>(part.begin) : nullptr,
                                 .parameter_dtype = DType::bf16};
  optim::StepScalars scalars{.step = 1, .learning_rate = 1e-3f, .weight_decay = 0.01f};
  for (auto _ : state) {
    optimizer->update(scalars, spans);
    ++scalars.step;
  }
  count_bytes(state, 24 + size_of(gradient) + (copies ? 2 : 0));
}

void norm(benchmark::State& state, DType dtype) {
  const Part part(state);
  for (auto _ : state) {
    optim::NormSum bins;
    optim::accumulate_norm(gradient_of(dtype, part.begin), dtype, part.count, bins);
    benchmark::DoNotOptimize(bins);
  }
  count_bytes(state, size_of(dtype));
}

void fill_gradient() {
  std::uint32_t random = 1;
  float* gradient = arrays().gradient.at(0);
  for (std::int64_t i = 0; i < parameters; ++i) {
    random = random * 1664525u + 1013904223u;
    gradient[i] = static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-40f;
  }
  optim::cast(gradient, DType::fp32, arrays().gradient_bf16.at(0), DType::bf16, parameters);
}

void add(const std::string& name, void (*run)(benchmark::State&)) {
  benchmark::RegisterBenchmark(name.c_str(), run)->ThreadRange(1, 2)->UseRealTime();
}

}  // namespace

int main(int count, char** values) {
  std::string interleave = "--benchmark_enable_random_interleaving=true";
  std::string repeat = "--benchmark_repetitions=9";
  std::string aggregate = "--benchmark_report_aggregates_only=true";
  std::vector<char*> arguments{values[0], interleave.data(), repeat.data(), aggregate.data()};
  arguments.insert(arguments.end(), values + 1, values + count);
  int given = static_cast<int>(arguments.size());
  benchmark::Initialize(&given, arguments.data());
  benchmark::AddCustomContext("simd", zero::name_of(zero::simd_level()));
  fill_gradient();
  add("read_modify_write", read_modify_write);
  add("adamw/fp32", [](benchmark::State& state) { adamw(state, DType::fp32, false); });
  add("adamw/fp32_gradient_bf16_copy",
      [](benchmark::State& state) { adamw(state, DType::fp32, true); });
  add("adamw/bf16", [](benchmark::State& state) { adamw(state, DType::bf16, true); });
  add("norm/fp32", [](benchmark::State& state) { norm(state, DType::fp32); });
  add("norm/bf16", [](benchmark::State& state) { norm(state, DType::bf16); });
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
