// DeviceKernels of the host: the vector kernels of kernels.h on the threads of a rank. Calls run at
// once instead of being queued. The results do not depend on the number of threads.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "optim/cpu/elements.h"
#include "optim/cpu/factors.h"
#include "optim/cpu/kernels.h"
#include "optim/device_kernels.h"
#include "optim/gradient_norm.h"
#include "zero/base/cpu/thread_pool.h"

namespace zero::optim {

namespace {

using cpu::element;
using cpu::Elements;
using cpu::FactorSums;
using cpu::grain_elements;
using cpu::take_moments;
using cpu::turn_to_directions;

struct Factors {
  Factors(const DeviceUpdate& update, const StepDecision& decision, std::int64_t group) {
    std::copy_n(factors_of_group(update, decision, group), most_factors, values);
    values[0] = static_cast<float>(decision.gradient_multiplier);
  }

  float values[most_factors];
};

// The factors of every rule begin with the gradient multiplier.
template <class Rule>
constexpr int step_position = offsetof(typename Rule::template Factors<float>, step) /
                              sizeof(float);

constexpr int decay_position = offsetof(AdafactorFactors<float>, decay) / sizeof(float);

// Calls run(arrays, first element) for elements of the update, given the master weights and states
// in fp32.
template <class Run>
void run_on(const DeviceUpdate& update, const Elements& part, float* master, float* const* states,
            const Run& run) {
  void* copy = update.parameter == nullptr
                   ? nullptr
                   : element(update.parameter, update.parameter_dtype, part.begin);
  std::uint8_t* changed = update.changed == nullptr ? nullptr : update.changed + part.begin / 8;
  run(cpu::UpdateArrays{part.count(), element(update.gradient, update.gradient_dtype, part.begin),
                        update.gradient_dtype, master, states, copy, update.parameter_dtype,
                        changed},
      part.begin);
}

// Calls run_on() for all elements of a part. Master weights or states stored in 16 bits are
// converted block by block to fp32 on the thread's stack and rounded back to nearest even.
template <class Run>
void in_fp32(const DeviceUpdate& update, int states, const Elements& part, const Run& run) {
  constexpr std::int64_t block_elements = 2048;  // few enough to stay in cache
  if (update.master_dtype == DType::fp32 && (states == 0 || update.state_dtype == DType::fp32)) {
    float* pointers[most_states] = {};
    for (int s = 0; s < states; ++s)
      pointers[s] = static_cast<float*>(update.states[s]) + part.begin;
    return run_on(update, part, static_cast<float*>(update.master) + part.begin, pointers, run);
  }
  alignas(64) float wide[1 + most_states][block_elements];
  float* pointers[most_states] = {wide[1], wide[2]};
  for (Elements block = part; block.begin < part.end; block.begin = block.end) {
    block.end = std::min(block.begin + block_elements, part.end);
    // Calls move(narrow, dtype of narrow, wide) for the block's elements of each array.
    const auto for_arrays = [&](const auto& move) {
      move(element(update.master, update.master_dtype, block.begin), update.master_dtype, wide[0]);
      for (int s = 0; s < states; ++s)
        move(element(update.states[s], update.state_dtype, block.begin), update.state_dtype,
             pointers[s]);
    };
    for_arrays([&](const void* narrow, DType dtype, float* to) {
      cast(narrow, dtype, to, DType::fp32, block.count());
    });
    run_on(update, block, wide[0], pointers, run);
    for_arrays([&](void* narrow, DType dtype, const float* from) {
      cast(from, DType::fp32, narrow, dtype, block.count());
    });
  }
}

bool sees_norms(RuleKind rule) {
  return optim::sees_norms(rule_of(rule).scope);
}

// Calls each(range, number, elements) for the ranges of the update that intersect `part`. Rules
// that see tensor norms skip the padding after a tensor.
template <class Each>
void for_ranges(RuleKind rule, const DeviceUpdate& update, const Elements& part, const Each& each) {
  const std::span ranges(update.ranges, static_cast<std::size_t>(update.range_count));
  auto range = std::ranges::upper_bound(ranges, part.begin, {}, &GroupRange::end);
  for (std::int64_t begin = part.begin; begin < part.end && range != ranges.end(); ++range) {
    const std::int64_t end = sees_norms(rule) ? range->filled : range->end;
    const Elements own{begin, std::min(part.end, end)};
    if (own.count() > 0) each(*range, range - ranges.begin(), own);
    begin = range->end;
  }
}

int states_of(RuleKind rule) {
  return static_cast<int>(rule_of(rule).states.size());
}

class HostKernels final : public DeviceKernels {
 public:
  explicit HostKernels(ThreadPool& pool) : pool_(pool) {}

  void cast(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count,
            Stream) override {
    optim::cast(from, from_dtype, to, to_dtype, count);
  }
  void accumulate(void* sum, DType dtype, const void* addend, DType addend_dtype,
                  std::int64_t count, Stream) override {
    accumulate_gradient(sum, dtype, addend, addend_dtype, count);
  }
  void divide(void* gradient, DType dtype, std::int64_t count, float divisor, Stream) override {
    cpu::kernels().divide(gradient, dtype, count, divisor);
  }
  void add_loss(const float* loss, double* sum, Stream) override {
    *sum += static_cast<double>(*loss);
  }
  void add_losses(const double* losses, double* sums, std::int64_t count, Stream) override {
    for (std::int64_t i = 0; i < count; ++i) sums[i] += losses[i];
  }

  void add_norm(const void* gradient, DType dtype, std::int64_t count, NormSum* sum,
                Stream) override {
    by_threads<NormSum>(
        count,
        [&](std::int64_t begin, std::int64_t end, NormSum& own) {
          accumulate_norm(element(gradient, dtype, begin), dtype, end - begin, own);
        },
        [&](const NormSum& own) { add_sum(own, *sum); });
  }

  void complete(const StepRequest* request, const double* loss_sum, StepVote* vote,
                Stream) override {
    complete_vote(*request, *loss_sum, *vote);
  }
  void decide(const StepVote* votes, int ranks, const StepRequest* request, StepDecision* decision,
              const double* losses, Stream) override {
    decide_step(votes, ranks, *request, *decision, losses);
  }

  void add_factor_sums(const DeviceUpdate& update, const StepDecision* decision, Stream) override {
    if (decision->apply == 0) return;
    for_ranges(RuleKind::adafactor_matrix, update, {0, update.count},
               [&](const GroupRange&, std::ptrdiff_t number, const Elements& part) {
                 FactorSums{update, update.tensors[number], part}.add(pool_);
               });
  }

  void take_factors(const DeviceUpdate& update, const FactoredMatrix& matrix,
                    const StepDecision* decision, Stream) override {
    if (decision->apply == 0) return;
    take_moments(
        factors_from<AdafactorRule, float>(Factors(update, *decision, update.group).values),
        matrix);
  }

  void measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
               const StepDecision* decision, Stream) override {
    if (decision->apply == 0) return;
    if (rule == RuleKind::adafactor_matrix)
      return for_ranges(rule, update, {0, update.count},
                        [&](const GroupRange& range, std::ptrdiff_t number, const Elements& part) {
                          measure_factored(update, number, part,
                                           Factors(update, *decision, range.group),
                                           sums[range.tensor]);
                        });
    for_ranges(rule, update, {0, update.count},
               [&](const GroupRange& range, std::ptrdiff_t, const Elements& part) {
                 measure_part(rule, update, part, Factors(update, *decision, range.group),
                              sums[range.tensor]);
               });
  }

  void take_steps(const DeviceUpdate& update, const TensorSums* sums, const StepDecision* decision,
                  Stream) override {
    if (decision->apply == 0) return;
    for (int r = 0; r < update.range_count; ++r) {
      const float* factors = factors_of_group(update, *decision, update.ranges[r].group);
      const TensorSums& own = sums[update.ranges[r].tensor];
      if (update.tensors == nullptr) {
        update.steps[r] = step_of(factors, own);
        continue;
      }
      const StepAndDecay found = adafactor_step(factors, own, update.tensors[r].elements);
      update.steps[r] = found.step, update.decays[r] = found.decay;
    }
  }

  void direct(const DeviceUpdate& update, float* directions, const StepDecision* decision,
              Stream) override {
    if (decision->apply == 0) return;
    const Factors factors(update, *decision, update.group);
    pool_.for_ranges(update.count, grain_elements, [&](std::int64_t begin, std::int64_t end) {
      in_fp32(update, MuonRule::states, {begin, end}, [&](const auto& arrays, std::int64_t at) {
        cpu::kernels().direct(RuleKind::muon, factors.values, arrays, directions + at);
      });
    });
  }

  void step_along(const DeviceUpdate& update, double scale, const StepDecision* decision,
                  Stream) override {
    if (decision->apply == 0) return;
    Factors factors(update, *decision, update.group);
    factors.values[step_position<MuonStepRule>] =
        step_by(tensor_step(factors_of_group(update, *decision, update.group)), scale);
    pool_.for_ranges(update.count, grain_elements, [&](std::int64_t begin, std::int64_t end) {
      in_fp32(update, MuonStepRule::states, {begin, end}, [&](const auto& arrays, std::int64_t) {
        cpu::kernels().update(RuleKind::muon, factors.values, arrays);
      });
    });
  }

  void product(const Product& product, std::int64_t rows, Stream) override {
    constexpr std::int64_t row_grain = 12;
    pool_.for_ranges(rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
      cpu::kernels().product(product, begin, end);
    });
  }

  void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to,
                 Stream) override {
    constexpr std::int64_t edge = 32;
    if (rows == 1) return void(std::copy_n(from, cols, to));
    for (std::int64_t i0 = 0; i0 < rows; i0 += edge)
      for (std::int64_t j0 = 0; j0 < cols; j0 += edge)
        for (std::int64_t i = i0; i < std::min(rows, i0 + edge); ++i)
          for (std::int64_t j = j0; j < std::min(cols, j0 + edge); ++j)
            to[j * rows + i] = from[i * cols + j];
  }

  void add_to_diagonal(float* matrix, std::int64_t edge, float value, Stream) override {
    for (std::int64_t i = 0; i < edge; ++i) matrix[i * edge + i] += value;
  }

  void normalize(RuleKind rule, float* values, std::int64_t count, NormSum* norm, Stream) override {
    *norm = {};
    accumulate_norm(values, DType::fp32, count, *norm);
    const float inverse = inverse_of_norm(rule, norm_of(*norm));
    for (std::int64_t i = 0; i < count; ++i) values[i] *= inverse;
  }

  void update(RuleKind rule, const DeviceUpdate& update, const StepDecision* decision,
              Stream) override {
    if (decision->apply == 0) return;
    const int states = states_of(rule);
    pool_.for_ranges(update.count, grain_elements, [&](std::int64_t begin, std::int64_t end) {
      for_ranges(rule, update, {begin, end},
                 [&](const GroupRange& range, std::ptrdiff_t number, const Elements& part) {
                   Factors factors(update, *decision, range.group);
                   if (update.tensors != nullptr) {
                     factors.values[step_position<AdafactorRule>] = update.steps[number];
                     factors.values[decay_position] = update.decays[number];
                   } else if (sees_norms(rule)) {
                     factors.values[step_position<LambRule<false>>] = update.steps[number];
                   }
                   if (rule == RuleKind::adafactor_matrix)
                     return update_factored(update, number, part, factors);
                   in_fp32(update, states, part, [&](const auto& arrays, std::int64_t) {
                     cpu::kernels().update(rule, factors.values, arrays);
                   });
                 });
    });
  }

 private:
  // Cuts [0, count) into a part per thread, each with its own sum. Small counts are not cut,
  // because a single thread finishes before more threads are awake.
  template <class Sum, class Add, class Collect>
  void by_threads(std::int64_t count, const Add& add, const Collect& collect) {
    const std::int64_t threads = pool_.threads();
    if (threads == 1 || count <= grain_elements) {
      Sum sum;
      add(0, count, sum);
      return collect(sum);
    }
    std::vector<Sum> sums(static_cast<std::size_t>(threads));
    pool_.run([&](int thread) {
      add(count * thread / threads, count * (thread + 1) / threads,
          sums[static_cast<std::size_t>(thread)]);
    });
    for (const Sum& sum : sums) collect(sum);
  }

  // Directions are only measured, not stored.
  void measure_part(RuleKind rule, const DeviceUpdate& update, const Elements& part,
                    const Factors& factors, TensorSums& sums) {
    by_threads<TensorSums>(
        part.count(),
        [&](std::int64_t begin, std::int64_t end, TensorSums& own) {
          for (std::int64_t at = begin; at < end; at += norm_tile)
            in_fp32(update, states_of(rule),
                    {part.begin + at, part.begin + std::min<std::int64_t>(end, at + norm_tile)},
                    [&](const cpu::UpdateArrays& arrays, std::int64_t) {
                      float directions[norm_tile];
                      accumulate_norm(arrays.master, DType::fp32, arrays.count, own.parameter);
                      cpu::kernels().direct(rule, factors.values, arrays, directions);
                      accumulate_norm(directions, DType::fp32, arrays.count, own.direction);
                    });
        },
        [&](const TensorSums& own) { add_tensor_sums(own, sums); });
  }

  // Calls run(arrays, directions) for tiles of a range of factored matrices.
  template <class Run>
  static void for_directions(const DeviceUpdate& update, std::ptrdiff_t number,
                             const Elements& part, const Factors& factors, const Run& run) {
    const std::int64_t begin = number == 0 ? 0 : update.ranges[number - 1].end;
    const auto own = factors_from<AdafactorRule, float>(factors.values);
    for (std::int64_t at = part.begin; at < part.end; at += norm_tile) {
      const Elements tile{at, std::min<std::int64_t>(part.end, at + norm_tile)};
      in_fp32(update, 0, tile, [&](const cpu::UpdateArrays& arrays, std::int64_t first) {
        float directions[norm_tile];
        optim::cast(arrays.gradient, arrays.gradient_dtype, directions, DType::fp32, arrays.count);
        turn_to_directions(own, update.tensors[number], first - begin,
                           {directions, static_cast<std::size_t>(arrays.count)});
        run(arrays, directions);
      });
    }
  }

  void measure_factored(const DeviceUpdate& update, std::ptrdiff_t number, const Elements& part,
                        const Factors& factors, TensorSums& sums) {
    by_threads<TensorSums>(
        part.count(),
        [&](std::int64_t begin, std::int64_t end, TensorSums& own) {
          for_directions(update, number, {part.begin + begin, part.begin + end}, factors,
                         [&](const cpu::UpdateArrays& arrays, const float* directions) {
                           accumulate_norm(arrays.master, DType::fp32, arrays.count, own.parameter);
                           accumulate_norm(directions, DType::fp32, arrays.count, own.direction);
                         });
        },
        [&](const TensorSums& own) { add_tensor_sums(own, sums); });
  }

  static void update_factored(const DeviceUpdate& update, std::ptrdiff_t number,
                              const Elements& part, const Factors& factors) {
    for_directions(update, number, part, factors,
                   [&](cpu::UpdateArrays arrays, const float* directions) {
                     arrays.gradient = directions;
                     arrays.gradient_dtype = DType::fp32;
                     cpu::kernels().update(RuleKind::adafactor_matrix, factors.values, arrays);
                   });
  }

  static void add_tensor_sums(const TensorSums& own, TensorSums& sums) {
    add_sum(own.parameter, sums.parameter);
    add_sum(own.direction, sums.direction);
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<DeviceKernels> create_host_kernels(ThreadPool& pool) {
  return std::make_unique<HostKernels>(pool);
}

}  // namespace zero::optim
