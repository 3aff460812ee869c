// Master weights and states of 16 bits on a device, with the same bits as on CPU ranks.
#include <doctest/doctest.h>

#include "tests/optim/device_support.h"
#include "tests/support/host_kernels.h"

using namespace zero;
using namespace zero::optim;
using namespace zero::optim::test;

namespace {

// Arrays stored like those of CPU ranks: read as fp32, and rounded back once per pass.
struct Narrow {
  DType master_dtype, state_dtype;
  std::vector<unsigned char> master, states[most_states], gradient;

  Narrow(DType of_master, DType of_state) : master_dtype(of_master), state_dtype(of_state) {
    const Shard wide = make_shard(count, of_master, Numbers::usual, 29);
    master = encode(wide.master, of_master);
    for (int s = 0; s < most_states; ++s) states[s] = encode(wide.states[s], of_state);
    gradient = wide.gradient;
  }

  // Calls pass(spans) with the elements in fp32, and rounds them back.
  template <class Pass>
  void on_cpu(std::size_t state_count, const Pass& pass) {
    std::vector<float> values[1 + most_states];
    for (auto& array : values) array.resize(count);
    optim::cast(master.data(), master_dtype, values[0].data(), DType::fp32, count);
    std::vector<float*> pointers;
    for (std::size_t s = 0; s < state_count; ++s) {
      optim::cast(states[s].data(), state_dtype, values[1 + s].data(), DType::fp32, count);
      pointers.push_back(values[1 + s].data());
    }
    pass(UpdateSpans{count, gradient.data(), master_dtype, values[0].data(), pointers, nullptr,
                     DType::bf16});
    optim::cast(values[0].data(), DType::fp32, master.data(), master_dtype, count);
    for (std::size_t s = 0; s < state_count; ++s)
      optim::cast(values[1 + s].data(), DType::fp32, states[s].data(), state_dtype, count);
  }

  DeviceUpdate update(const std::vector<float>& factors, const GroupRange& range) {
    DeviceUpdate update;
    update.count = count;
    update.gradient = gradient.data();
    update.gradient_dtype = master_dtype;
    update.master = master.data();
    update.master_dtype = master_dtype;
    for (int s = 0; s < most_states; ++s) update.states[s] = states[s].data();
    update.state_dtype = state_dtype;
    update.factors = factors.data();
    update.groups = 2;
    update.ranges = &range;
    update.range_count = 1;
    update.group = range.group;
    return update;
  }

  bool operator==(const Narrow& other) const {
    return master == other.master && states[0] == other.states[0] && states[1] == other.states[1];
  }
};

constexpr std::pair<DType, DType> narrow_dtypes[] = {
    {DType::bf16, DType::fp32}, {DType::bf16, DType::bf16}, {DType::fp16, DType::fp32}};

}  // namespace

TEST_CASE("device updates: master weights and states of 16 bits are rounded as on the CPU") {
  const auto kernels = create_host_kernels();
  for (const auto& [master, state] : narrow_dtypes)
    for (const OptimizerOptions& options : all_rules()) {
      CAPTURE(options.type);
      CAPTURE(name_of(master));
      CAPTURE(name_of(state));
      Narrow expected(master, state);
      Narrow actual = expected;
      const auto rule = create_optimizer(options);
      expected.on_cpu(rule->state_names().size(),
                      [&](const UpdateSpans& spans) { rule->update(scalars_of(1, 1), spans); });
      const auto factors = factors_for(options);
      const GroupRange range{count, 1};
      const StepDecision decision = applying();
      kernels->update(rule_kind(options), actual.update(factors, range), &decision, {});
      CHECK(actual == expected);
    }
}

TEST_CASE("the same of rules that see norms or matrices, which move the states in a first pass") {
  const auto kernels = create_host_kernels();
  for (const auto& [master, state] : narrow_dtypes) {
    CAPTURE(name_of(master));
    CAPTURE(name_of(state));
    const StepDecision decision = applying();
    const GroupRange range{count, 1, 0, count};
    std::vector<float> directions(count), own(count);
    {
      OptimizerOptions options;
      options.type = "Lamb";
      Narrow expected(master, state);
      Narrow actual = expected;
      const auto rule = create_optimizer(options);
      StepScalars scalars = scalars_of(1, 1);
      NormSum bins;
      accumulate_norm(expected.master.data(), master, count, bins);
      expected.on_cpu(
          2, [&](const UpdateSpans& spans) { rule->direction(scalars, spans, directions.data()); });
      scalars.step_scale =
          rule->step_scale(norm_of(bins), norm_of_floats(directions.data(), count));
      expected.on_cpu(2, [&](const UpdateSpans& spans) { rule->update(scalars, spans); });
      const auto factors = factors_for(options);
      TensorSums sums;
      float step = 0;
      DeviceUpdate update = actual.update(factors, range);
      update.steps = &step;
      kernels->measure(rule_kind(options), update, &sums, &decision, {});
      kernels->take_steps(update, &sums, &decision, {});
      kernels->update(rule_kind(options), update, &decision, {});
      CHECK(actual == expected);
    }
    const OptimizerOptions options = default_options("Muon");
    Narrow expected(master, state);
    Narrow actual = expected;
    const auto rule = create_optimizer(options);
    StepScalars scalars = scalars_of(1, 1);
    expected.on_cpu(
        1, [&](const UpdateSpans& spans) { rule->direction(scalars, spans, directions.data()); });
    scalars.step_scale = 1.7;
    expected.on_cpu(1, [&](UpdateSpans spans) {
      spans.gradient = directions.data();
      spans.gradient_dtype = DType::fp32;
      rule->update(scalars, spans);
    });
    const auto factors = factors_for(options);
    DeviceUpdate update = actual.update(factors, range);
    kernels->direct(update, own.data(), &decision, {});
    CHECK(same_bits(own, directions));
    update.gradient = own.data();
    update.gradient_dtype = DType::fp32;
    kernels->step_along(update, 1.7, &decision, {});
    CHECK(actual == expected);
  }
}
