#include "tests/support/host_kernels.h"

#include <algorithm>
#include <cmath>

#include "optim/element_types.h"
#include "optim/matrix_elements.h"

namespace zero::optim {

namespace {

// Word: DeviceVote or NormSum.
template <class T, class Word>
void add_tile(const T* values, std::int64_t count, Word& word) {
  MagnitudeRange range;
  std::int64_t finite = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = to_float(values[i]);
    if (!is_finite_value(value)) continue;
    range.include(value);
    ++finite;
  }
  word.non_finite += count - finite;
  if (range.largest == 0) return;
  const SquareUnits units = units_of<T>(range);
  with_units(units, [&]<int unit_count, bool cut>() {
    std::uint64_t counts[unit_count] = {};
    for (std::int64_t i = 0; i < count; ++i)
      if (const float value = to_float(values[i]); is_finite_value(value))
        add_square<unit_count, cut>(value, units.lowest, counts);
    for (int k = 0; k < unit_count; ++k)
      add_unit(counts[k], static_cast<std::uint64_t>(finite), units.lowest + k * norm_unit_bits,
               word.limbs);
  });
  carry_limbs(word.limbs);
}

float load(const void* from, DType dtype, std::int64_t at) {
  float value = 0;
  with_float_type(dtype, [&]<class T>(T) { value = to_float(static_cast<const T*>(from)[at]); });
  return value;
}

void store(float value, void* to, DType dtype, std::int64_t at) {
  with_float_type(dtype, [&]<class T>(T) { static_cast<T*>(to)[at] = from_float<T>(value); });
}

template <class Rule>
auto factors_of(const DeviceUpdate& update, const DeviceDecision& decision,
                const GroupRange& range) {
  return factors_from<Rule>(factors_of_group(update, decision, range.group),
                            static_cast<float>(decision.gradient_multiplier));
}

// Calls body(number, begin) for every range.
template <class Body>
void for_ranges(const DeviceUpdate& update, const Body& body) {
  for (int number = 0; number < update.range_count; ++number)
    body(number, number == 0 ? 0 : update.ranges[number - 1].end);
}

template <class Rule>
void load_states(const DeviceUpdate& update, std::int64_t at, float* moments) {
  for (int s = 0; s < Rule::states; ++s)
    moments[s] = load(update.states[s], update.state_dtype, at);
}

template <class Rule>
void store_states(const float* moments, const DeviceUpdate& update, std::int64_t at) {
  for (int s = 0; s < Rule::states; ++s)
    store(moments[s], update.states[s], update.state_dtype, at);
}

template <class Rule>
void update_all(const DeviceUpdate& update, const DeviceDecision& decision) {
  for_ranges(update, [&](int number, std::int64_t begin) {
    const GroupRange& range = update.ranges[number];
    auto factors = factors_of<Rule>(update, decision, range);
    std::int64_t end = range.end;
    if constexpr (HasDirection<Rule>) {
      factors.step = update.steps[number];
      end = range.filled;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      float moments[Rule::states + 1] = {}, master = load(update.master, update.master_dtype, i);
      load_states<Rule>(update, i, moments);
      Rule::apply(factors, load(update.gradient, update.gradient_dtype, i), master, moments);
      store_states<Rule>(moments, update, i);
      store(master, update.master, update.master_dtype, i);
      if (update.parameter != nullptr) store(master, update.parameter, update.parameter_dtype, i);
    }
  });
}

template <class Rule>
void measure_all(const DeviceUpdate& update, TensorSums* sums, const DeviceDecision& decision) {
  for_ranges(update, [&](int number, std::int64_t begin) {
    const GroupRange& range = update.ranges[number];
    const auto factors = factors_of<Rule>(update, decision, range);
    TensorSums& sum = sums[range.tensor];
    for (std::int64_t at = begin; at < range.filled; at += norm_tile) {
      const std::int64_t count = std::min<std::int64_t>(norm_tile, range.filled - at);
      float directions[norm_tile], masters[norm_tile];
      for (std::int64_t i = at; i < at + count; ++i) {
        float moments[Rule::states] = {};
        load_states<Rule>(update, i, moments);
        masters[i - at] = load(update.master, update.master_dtype, i);
        directions[i - at] = Rule::direct(factors, load(update.gradient, update.gradient_dtype, i),
                                          masters[i - at], moments);
        store_states<Rule>(moments, update, i);
      }
      add_tile(masters, count, sum.parameter);
      add_tile(directions, count, sum.direction);
    }
  });
}

float product_element(const Product& product, std::int64_t row, std::int64_t col) {
  float sum = 0;
  for (std::int64_t k = 0; k < product.depth; ++k)
    sum = std::fma(
        product.a[row * product.depth + k],
        product.transposed ? product.b[col * product.depth + k] : product.b[k * product.cols + col],
        sum);
  return finished_element(product, sum, row, col);
}

class HostKernels final : public DeviceKernels {
 public:
  void cast(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count,
            Stream) override {
    for (std::int64_t i = 0; i < count; ++i) store(load(from, from_dtype, i), to, to_dtype, i);
  }

  void accumulate(void* sum, DType dtype, const void* addend, DType addend_dtype,
                  std::int64_t count, Stream) override {
    for (std::int64_t i = 0; i < count; ++i)
      store(load(sum, dtype, i) + load(addend, addend_dtype, i), sum, dtype, i);
  }

  void divide(void* gradient, DType dtype, std::int64_t count, float divisor, Stream) override {
    for (std::int64_t i = 0; i < count; ++i)
      store(load(gradient, dtype, i) / divisor, gradient, dtype, i);
  }

  void add_loss(const float* loss, double* sum, Stream) override { *sum += *loss; }

  void add_norm(const void* gradient, DType dtype, std::int64_t count, DeviceVote* word,
                Stream) override {
    with_float_type(dtype, [&]<class T>(T) {
      const auto* values = static_cast<const T*>(gradient);
      for (std::int64_t at = 0; at < count; at += norm_tile)
        add_tile(values + at, std::min<std::int64_t>(norm_tile, count - at), *word);
    });
  }

  void seal(const StepRequest* request, const double* loss_sum, DeviceVote* word, Stream) override {
    seal_word(*request, *loss_sum, *word);
  }

  void decide(const DeviceVote* words, int ranks, const StepRequest* request,
              DeviceDecision* decision, Stream) override {
    decide_step(words, ranks, *request, *decision);
  }

  void measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
               const DeviceDecision* decision, Stream) override {
    if (decision->apply == 0) return;
    with_tensor_rule(rule, [&]<class Rule>() { measure_all<Rule>(update, sums, *decision); });
  }

  void take_steps(const DeviceUpdate& update, const TensorSums* sums,
                  const DeviceDecision* decision, Stream) override {
    if (decision->apply == 0) return;
    for (int r = 0; r < update.range_count; ++r)
      update.steps[r] = step_of(factors_of_group(update, *decision, update.ranges[r].group),
                                sums[update.ranges[r].tensor]);
  }

  void direct(const DeviceUpdate& update, float* directions, const DeviceDecision* decision,
              Stream) override {
    if (decision->apply == 0) return;
    const auto factors = factors_from<MuonRule>(factors_of_group(update, *decision, update.group),
                                                static_cast<float>(decision->gradient_multiplier));
    for (std::int64_t i = 0; i < update.count; ++i) {
      float momentum = load(update.states[0], update.state_dtype, i);
      directions[i] = MuonRule::direct(factors, load(update.gradient, update.gradient_dtype, i),
                                       load(update.master, update.master_dtype, i), &momentum);
      store(momentum, update.states[0], update.state_dtype, i);
    }
  }

  void step_along(const DeviceUpdate& update, double scale, const DeviceDecision* decision,
                  Stream) override {
    if (decision->apply == 0) return;
    const float* group = factors_of_group(update, *decision, update.group);
    auto factors = factors_from<MuonStepRule>(group, 0);
    factors.step = step_by(tensor_step(group), scale);
    for (std::int64_t i = 0; i < update.count; ++i) {
      float master = load(update.master, update.master_dtype, i);
      MuonStepRule::apply(factors, load(update.gradient, update.gradient_dtype, i), master,
                          static_cast<float*>(nullptr));
      store(master, update.master, update.master_dtype, i);
      if (update.parameter != nullptr) store(master, update.parameter, update.parameter_dtype, i);
    }
  }

  void product(const Product& product, std::int64_t rows, Stream) override {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < product.cols; ++j)
        product.out[i * product.cols + j] = product_element(product, i, j);
  }

  void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to,
                 Stream) override {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) to[j * rows + i] = from[i * cols + j];
  }

  void add_to_diagonal(float* matrix, std::int64_t edge, float value, Stream) override {
    for (std::int64_t i = 0; i < edge; ++i) matrix[i * edge + i] += value;
  }

  void normalise(float* values, std::int64_t count, NormSum* norm, Stream) override {
    *norm = {};
    for (std::int64_t at = 0; at < count; at += norm_tile)
      add_tile(values + at, std::min<std::int64_t>(norm_tile, count - at), *norm);
    const float inverse = inverse_of_norm(norm_of(*norm));
    for (std::int64_t i = 0; i < count; ++i) values[i] *= inverse;
  }

  void update(RuleKind rule, const DeviceUpdate& update, const DeviceDecision* decision,
              Stream) override {
    if (decision->apply == 0) return;
    with_rule(rule, [&]<class Rule>() { update_all<Rule>(update, *decision); });
  }
};

}  // namespace

std::unique_ptr<DeviceKernels> create_host_kernels() {
  return std::make_unique<HostKernels>();
}

}  // namespace zero::optim
