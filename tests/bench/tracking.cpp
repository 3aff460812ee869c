// An update that notes which weights change in their bits, against one that does not, in pairs of
// neighboring parts of the same arrays, in both orders:
//   bench_tracking ELEMENTS THREADS PASSES [RATE [RULE ...]]
// Prints per rule and dtype of the weights the median time of all elements without and with, and
// the median and the quartiles of the pairs' ratios.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "optim/device_kernels.h"
#include "zero/base/arena.h"
#include "zero/base/cpu/thread_pool.h"

namespace {

using namespace zero;
using namespace zero::optim;

struct Arrays {
  explicit Arrays(std::int64_t elements)
      : count(elements / 128 * 128),
        arena(6 * Arena::rounded(count * 4), Arena::Sharing::private_memory, "arrays") {
    for (float** array : {&gradient, &master, &first, &second})
      *array = static_cast<float*>(arena.take(count * 4));
    copy = arena.take(count * 2);
    changed = static_cast<std::uint8_t*>(arena.take(count / 8));
  }
  // Starts from weights and gradients of the usual sizes, with moments that fit.
  void fill(DType dtype) {
    std::uint32_t random = 1;
    const auto next = [&] {
      random = random * 1664525u + 1013904223u;
      return static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-31f;
    };
    for (std::int64_t i = 0; i < count; ++i) {
      const float slope = next() * 1e-3f;
      master[i] = next() * 0.05f, first[i] = std::fabs(slope), second[i] = slope * slope;
      if (dtype == DType::fp32) gradient[i] = slope;
      if (dtype == DType::bf16) reinterpret_cast<bf16*>(gradient)[i] = from_float<bf16>(slope);
      if (dtype == DType::fp16) reinterpret_cast<fp16*>(gradient)[i] = from_float<fp16>(slope);
    }
  }

  std::int64_t count;
  Arena arena;
  float *gradient = nullptr, *master = nullptr, *first = nullptr, *second = nullptr;
  void* copy = nullptr;
  std::uint8_t* changed = nullptr;
};

constexpr std::int64_t part_elements = std::int64_t{1} << 19;

class Steps {
 public:
  Steps(const Arrays& arrays, DeviceKernels& kernels, const OptimizerOptions& options, DType dtype)
      : kernels_(kernels), kind_(rule_kind(options)), changed_(arrays.changed) {
    range_ = {.end = arrays.count, .group = 0, .tensor = 0, .filled = arrays.count};
    const StepScalars scalars{
        .step = 100, .learning_rate = static_cast<float>(options.learning_rate), .weight_decay = 0};
    rule_of(options).write(options, scalars, factors_);
    decision_.apply = 1;
    decision_.gradient_multiplier = 1;
    update_ = {.count = arrays.count,
               .gradient = arrays.gradient,
               .gradient_dtype = dtype,
               .master = arrays.master,
               .states = {arrays.first, arrays.second},
               .parameter = dtype == DType::fp32 ? nullptr : arrays.copy,
               .parameter_dtype = dtype,
               .ranges = &range_,
               .range_count = 1,
               .factors = factors_};
  }

  // Returns the seconds of a part, scaled to all elements.
  double seconds(std::int64_t begin, std::int64_t count, bool tracks) {
    DeviceUpdate part = update_;
    const auto move = [&](void*& array, std::int64_t bytes) {
      if (array != nullptr) array = static_cast<std::byte*>(array) + begin * bytes;
    };
    part.gradient =
        static_cast<const std::byte*>(update_.gradient) + begin * size_of(update_.gradient_dtype);
    move(part.master, 4), move(part.states[0], 4), move(part.states[1], 4), move(part.parameter, 2);
    part.changed = tracks ? changed_ + begin / 8 : nullptr;
    part.count = range_.end = range_.filled = count;
    const auto start = std::chrono::steady_clock::now();
    if (rule_of(kind_).scope == UpdateScope::whole_matrices)
      kernels_.step_along(part, 1, &decision_, {});
    else
      kernels_.update(kind_, part, &decision_, {});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return taken.count() * static_cast<double>(update_.count) / static_cast<double>(count);
  }

 private:
  DeviceKernels& kernels_;
  RuleKind kind_;
  std::uint8_t* changed_;
  GroupRange range_;
  float factors_[most_factors] = {};
  StepDecision decision_;
  DeviceUpdate update_;
};

void measure(const std::string& rule, DType dtype, Steps& steps, std::int64_t count, int passes) {
  std::vector<double> ratios, without, with;
  const std::int64_t part = std::min(part_elements, count / 256 * 128);
  for (int pass = -1; pass < passes; ++pass)
    for (std::int64_t begin = 0, pair = 0; begin + 2 * part <= count; begin += 2 * part, ++pair) {
      double seconds[2];
      for (const int turn : {0, 1}) {
        const bool tracks = (pass + pair + turn) % 2 != 0;
        seconds[tracks] = steps.seconds(begin + turn * part, part, tracks);
      }
      if (pass < 0) continue;  // page faults
      without.push_back(seconds[0]), with.push_back(seconds[1]);
      ratios.push_back(seconds[0] / seconds[1]);
    }
  for (auto* values : {&ratios, &without, &with}) std::ranges::sort(*values);
  const auto at = [&](const std::vector<double>& values, std::size_t part) {
    return values[values.size() * part / 4];
  };
  std::printf("%-8s %-4s  without %8.3f ms  with %8.3f ms  ratio %.3f [%.3f, %.3f]\n", rule.c_str(),
              name_of(dtype), at(without, 2) * 1e3, at(with, 2) * 1e3, at(ratios, 2), at(ratios, 1),
              at(ratios, 3));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: bench_tracking ELEMENTS THREADS PASSES [RATE [RULE ...]]\n", stderr);
    return 10;
  }
  Arrays arrays(std::atoll(argv[1]));
  ThreadPool pool(std::atoi(argv[2]));
  const auto kernels = create_host_kernels(pool);
  std::vector<std::string> rules(argv + std::min(argc, 5), argv + argc);
  if (rules.empty()) rules = {"AdamW", "SGD", "Lion", "Muon", "Adagrad"};
  for (const std::string& rule : rules)
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      OptimizerOptions options = default_options(rule);
      options.learning_rate = argc > 4 ? std::atof(argv[4]) : 1e-4;
      arrays.fill(dtype);
      Steps steps(arrays, *kernels, options, dtype);
      measure(rule, dtype, steps, arrays.count, std::atoi(argv[3]));
    }
  return 0;
}
