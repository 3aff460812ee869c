// The host twins of the device kernels share every formula with them; here they are compared with
// the vector kernels of the CPU, bit by bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "tests/optim/device_support.h"
#include "tests/support/host_kernels.h"
#include "zero/base/cpu/thread_pool.h"

namespace {

using namespace zero;
using namespace zero::optim;
using namespace zero::optim::test;

NormSum sum_of(const std::vector<float>& values, DType dtype, std::int64_t cut) {
  const auto bytes = encode(values, dtype);
  const auto kernels = create_host_kernels();
  const auto count = static_cast<std::int64_t>(values.size());
  NormSum sum;
  kernels->add_norm(bytes.data(), dtype, cut, &sum, {});
  kernels->add_norm(bytes.data() + cut * size_of(dtype), dtype, count - cut, &sum, {});
  return sum;
}

NormSum bins_of(const std::vector<float>& values, DType dtype) {
  NormSum bins;
  accumulate_norm(encode(values, dtype).data(), dtype, static_cast<std::int64_t>(values.size()),
                  bins);
  return bins;
}

void update_on_cpu(const OptimizerOptions& options, int candidate, DType dtype, bool copies,
                   Shard& shard) {
  const auto optimizer = create_optimizer(options);
  for (const int group : {0, 1}) {
    const std::int64_t begin = group == 0 ? 0 : split, end = group == 0 ? split : count;
    std::vector<float*> states;
    for (std::size_t s = 0; s < optimizer->state_names().size(); ++s)
      states.push_back(shard.states[s].data() + begin);
    optimizer->update(
        scalars_of(candidate, group),
        {end - begin, shard.gradient.data() + begin * size_of(dtype), dtype,
         shard.master.data() + begin, states, copies ? shard.copy.data() + begin * 2 : nullptr,
         dtype == DType::fp16 ? DType::fp16 : DType::bf16});
  }
}

void update_on_device(const OptimizerOptions& options, const StepDecision& decision, DType dtype,
                      bool copies, Shard& shard) {
  const auto factors = factors_for(options);
  const GroupRange ranges[] = {{split, 0}, {count, 1}};
  DeviceUpdate update;
  update.count = count;
  update.gradient = shard.gradient.data();
  update.gradient_dtype = dtype;
  update.master = shard.master.data();
  for (int s = 0; s < most_states; ++s) update.states[s] = shard.states[s].data();
  update.parameter = copies ? shard.copy.data() : nullptr;
  update.parameter_dtype = dtype == DType::fp16 ? DType::fp16 : DType::bf16;
  update.ranges = ranges;
  update.range_count = 2;
  update.factors = factors.data();
  update.groups = 2;
  create_host_kernels()->update(rule_kind(options), update, &decision, {});
}

}  // namespace

TEST_CASE("device norm: the bins of the vector kernels, for any numbers and any cut") {
  for (const DType dtype : floating)
    for (const Numbers numbers : {Numbers::usual, Numbers::wild})
      for (const std::size_t size : {1u, 7u, 128u, 4096u, 4097u, 20000u}) {
        CAPTURE(size);
        auto values = random_floats(size, numbers, static_cast<unsigned>(size));
        const NormSum sum = sum_of(values, dtype, static_cast<std::int64_t>(size / 3));
        const NormSum bins = bins_of(values, dtype);
        CHECK(sum == bins);
      }
}

TEST_CASE("device norm: values that are not finite are counted and left out") {
  auto values = random_floats(5000, Numbers::usual, 3);
  values[17] = std::numeric_limits<float>::infinity();
  values[4999] = std::numeric_limits<float>::quiet_NaN();
  const NormSum sum = sum_of(values, DType::fp32, 100);
  CHECK(sum.non_finite == 2);
  const NormSum bins = bins_of(values, DType::fp32);
  CHECK(std::ranges::equal(sum.limbs, bins.limbs));
}

TEST_CASE("device updates: the bits of the vector kernels, by rule, dtype, group and candidate") {
  for (const OptimizerOptions& options : all_rules())
    for (const DType dtype : floating)
      for (const Numbers numbers : {Numbers::usual, Numbers::wild})
        for (const bool copies : {false, true})
          for (const int candidate : {0, 1}) {
            CAPTURE(options.type);
            CAPTURE(name_of(dtype));
            Shard expected = make_shard(count, dtype, numbers, 11);
            Shard actual = expected;
            StepDecision decision;
            decision.apply = 1;
            decision.candidate = candidate;
            decision.gradient_multiplier = static_cast<double>(multiplier);
            update_on_cpu(options, candidate, dtype, copies, expected);
            update_on_device(options, decision, dtype, copies, actual);
            CHECK(same_bits(actual.master, expected.master));
            for (int s = 0; s < most_states; ++s)
              CHECK(same_bits(actual.states[s], expected.states[s]));
            if (copies && numbers == Numbers::usual) CHECK(actual.copy == expected.copy);
          }
}

TEST_CASE("device updates: a decision of skip leaves everything as it was") {
  const Shard before = make_shard(count, DType::fp32, Numbers::usual, 5);
  Shard shard = before;
  update_on_device(all_rules()[0], StepDecision{}, DType::fp32, true, shard);
  CHECK(same_bits(shard.master, before.master));
  CHECK(same_bits(shard.states[0], before.states[0]));
  CHECK(shard.copy == before.copy);
}

TEST_CASE("device casts, sums and quotients: the bits of the vector kernels, for all dtypes") {
  constexpr std::int64_t size = 1024;
  const auto kernels = create_host_kernels();
  for (const DType dtype : floating) {
    const auto start = encode(random_floats(size, Numbers::wild, 1), dtype);
    for (const DType other : floating) {
      CAPTURE(name_of(dtype));
      CAPTURE(name_of(other));
      const auto more = encode(random_floats(size, Numbers::wild, 2), other);
      auto expected = start, actual = start;
      accumulate_gradient(expected.data(), dtype, more.data(), other, size);
      kernels->accumulate(actual.data(), dtype, more.data(), other, size, {});
      CHECK(actual == expected);
      optim::cast(more.data(), other, expected.data(), dtype, size);
      kernels->cast(more.data(), other, actual.data(), dtype, size, {});
      if (other != dtype) CHECK(actual == expected);
    }
    for (const float divisor : {2.f, 3.f}) {
      auto expected = start, actual = start;
      cpu::kernels().divide(expected.data(), dtype, size, divisor);
      kernels->divide(actual.data(), dtype, size, divisor, {});
      CHECK(actual == expected);
    }
  }
}

namespace {

DeviceUpdate update_of(Shard& shard, DType dtype, const std::vector<float>& factors) {
  DeviceUpdate update;
  update.count = count;
  update.gradient = shard.gradient.data();
  update.gradient_dtype = dtype;
  update.master = shard.master.data();
  for (int s = 0; s < most_states; ++s) update.states[s] = shard.states[s].data();
  update.parameter = shard.copy.data();
  update.factors = factors.data();
  update.groups = 2;
  return update;
}

// Tensors of 100 and of 200 elements, in two groups, with padding after each.
struct Tensor {
  std::int64_t begin, size;
};
constexpr Tensor tensors[] = {{0, 100}, {split, 200}};

void lamb_on_cpu(const OptimizerOptions& options, DType dtype, Shard& shard) {
  const auto rule = create_optimizer(options);
  for (const int t : {0, 1}) {
    const auto [begin, size] = tensors[t];
    std::vector<float*> states{shard.states[0].data() + begin, shard.states[1].data() + begin};
    const UpdateSpans spans{size,       shard.gradient.data() + begin * size_of(dtype),
                            dtype,      shard.master.data() + begin,
                            states,     shard.copy.data() + begin * 2,
                            DType::bf16};
    std::vector<float> directions(static_cast<std::size_t>(size));
    StepScalars scalars = scalars_of(1, t);
    rule->direction(scalars, spans, directions.data());
    scalars.step_scale = rule->step_scale(norm_of_floats(spans.master, size),
                                          norm_of_floats(directions.data(), size));
    rule->update(scalars, spans);
  }
}

}  // namespace

TEST_CASE("Lamb on a device: norms, steps and updates have the bits of the vector kernels") {
  const auto kernels = create_host_kernels();
  for (const bool inside : {false, true})
    for (const DType dtype : floating) {
      CAPTURE(inside);
      CAPTURE(name_of(dtype));
      OptimizerOptions options;
      options.type = "Lamb";
      options.eps_inside_sqrt = inside;
      options.max_coeff = inside ? 10 : 0.3;
      Shard expected = make_shard(count, dtype, Numbers::usual, 17);
      Shard actual = expected;
      lamb_on_cpu(options, dtype, expected);

      const auto factors = factors_for(options);
      const StepDecision decision = applying();
      const GroupRange ranges[] = {{split, 0, 0, 100}, {count, 1, 1, split + 200}};
      TensorSums sums[2];
      float steps[2] = {};
      DeviceUpdate update = update_of(actual, dtype, factors);
      update.ranges = ranges;
      update.range_count = 2;
      update.steps = steps;
      kernels->measure(rule_kind(options), update, sums, &decision, {});
      kernels->take_steps(update, sums, &decision, {});
      kernels->update(rule_kind(options), update, &decision, {});
      CHECK(steps[0] != steps[1]);
      CHECK(same_bits(actual.master, expected.master));
      CHECK(same_bits(actual.states[0], expected.states[0]));
      CHECK(same_bits(actual.states[1], expected.states[1]));
      CHECK(actual.copy == expected.copy);

      const Shard before = actual;
      const StepDecision skip;
      kernels->measure(rule_kind(options), update, sums, &skip, {});
      kernels->update(rule_kind(options), update, &skip, {});
      CHECK(same_bits(actual.master, before.master));
      CHECK(same_bits(actual.states[0], before.states[0]));
    }
}

TEST_CASE("Muon on a device: directions and steps have the bits of the vector kernels") {
  const auto kernels = create_host_kernels();
  for (const DType dtype : floating) {
    CAPTURE(name_of(dtype));
    OptimizerOptions options = default_options("Muon");
    Shard expected = make_shard(count, dtype, Numbers::usual, 23);
    Shard actual = expected;
    const auto rule = create_optimizer(options);
    std::vector<float> directions(count), own(count);
    StepScalars scalars = scalars_of(1, 1);
    float* states[] = {expected.states[0].data()};
    UpdateSpans spans{count,  expected.gradient.data(), dtype,      expected.master.data(),
                      states, expected.copy.data(),     DType::bf16};
    rule->direction(scalars, spans, directions.data());
    spans.gradient = directions.data();
    spans.gradient_dtype = DType::fp32;
    scalars.step_scale = 1.7;
    rule->update(scalars, spans);

    const auto factors = factors_for(options);
    const StepDecision decision = applying(), skip;
    DeviceUpdate update = update_of(actual, dtype, factors);
    update.group = 1;
    kernels->direct(update, own.data(), &skip, {});
    CHECK(own == std::vector<float>(count));
    kernels->direct(update, own.data(), &decision, {});
    CHECK(same_bits(own, directions));
    update.gradient = own.data();
    update.gradient_dtype = DType::fp32;
    kernels->step_along(update, 1.7, &skip, {});
    kernels->step_along(update, 1.7, &decision, {});
    CHECK(same_bits(actual.master, expected.master));
    CHECK(same_bits(actual.states[0], expected.states[0]));
    CHECK(actual.copy == expected.copy);
  }
}

namespace {

StepRequest request_of(std::int64_t step) {
  StepRequest request;
  request.step = step;
  request.summands = 4;
  request.clipping = 0.5;
  request.first_applied = 1;
  request.learning_rates[0] = 0.1;
  request.learning_rates[1] = 0.2;
  return request;
}

std::vector<StepVote> votes_of(const StepRequest& request, int ranks) {
  std::vector<StepVote> votes;
  for (int r = 0; r < ranks; ++r) {
    votes.emplace_back().norm =
        sum_of(random_floats(300, Numbers::usual, static_cast<unsigned>(r)), DType::fp32, 0);
    complete_vote(request, 1.5 + r, votes.back());
  }
  return votes;
}

}  // namespace

TEST_CASE("the decision: norm, loss and multiplier as the host takes them") {
  const StepRequest request = request_of(1);
  const auto votes = votes_of(request, 3);
  NormSum bins;
  double loss = 0;
  for (const StepVote& vote : votes) {
    add_sum(vote.norm, bins);
    loss += vote.loss;
  }
  StepDecision decision;
  decide_step(votes.data(), 3, request, decision);
  const double norm = norm_of(bins) * 0.25;
  CHECK(decision.apply == 1);
  CHECK(decision.applied_steps == 1);
  CHECK(decision.norm == norm);
  CHECK(decision.loss == loss / 3);
  CHECK(decision.learning_rate == 0.1);
  CHECK(decision.gradient_multiplier ==
        static_cast<double>(
            static_cast<float>(0.25 / std::max((norm + 1e-6) / request.clipping, 1.0))));
}

TEST_CASE("the decision: the applied count picks the candidate, a skip does not count") {
  StepDecision decision;
  StepRequest request = request_of(1);
  auto votes = votes_of(request, 2);
  votes[1].norm.non_finite = 3;
  decide_step(votes.data(), 2, request, decision);
  CHECK(decision.apply == 0);
  CHECK(decision.applied_steps == 0);
  CHECK(decision.first_non_finite_rank == 1);
  CHECK(std::isinf(decision.norm));

  request = request_of(2);
  votes = votes_of(request, 2);
  decide_step(votes.data(), 2, request, decision);
  CHECK(decision.candidate == 0);
  request = request_of(3);
  votes = votes_of(request, 2);
  decide_step(votes.data(), 2, request, decision);
  CHECK(decision.candidate == 1);
  CHECK(decision.learning_rate == 0.2);
  CHECK(decision.applied_steps == 2);
}

TEST_CASE("the decision: gradients lose the scale they carry, which then moves") {
  StepRequest request = request_of(1);
  request.clipping = 0;
  request.predivision = 2;
  request.scales_loss = 1;
  request.scaling.hysteresis = 1;
  request.scaling.loss_scale_window = 1;
  LossScaler host(request.scaling);
  StepDecision decision;
  decision.scaler = host.state();
  decision.next_loss_scale = host.scale();
  for (int step = 1; step <= 8; ++step) {
    CAPTURE(step);
    request.step = request.first_applied = step;
    request.known_applied = step - 1;
    auto votes = votes_of(request, 2);
    const bool overflow = step == 2 || step == 6;
    votes[0].norm.non_finite = overflow;
    decide_step(votes.data(), 2, request, decision);
    CHECK(decision.loss_scale == static_cast<double>(host.scale()));
    CHECK(decision.gradient_multiplier ==
          static_cast<double>(static_cast<float>(2 / (4 * static_cast<double>(host.scale())))));
    host.update(overflow);
    CHECK(decision.scaler == host.state());
    CHECK(decision.next_loss_scale == host.scale());
  }
  CHECK(host.scale() != 65536);
}

TEST_CASE(
    "the decision: votes that are not this step's, or that differ, apply nothing, "
    "ever after") {
  const auto spoil = [](auto change, Differs expected) {
    StepDecision decision;
    StepRequest request = request_of(5);
    request.known_applied = 0;
    auto votes = votes_of(request, 3);
    change(votes);
    decide_step(votes.data(), 3, request, decision);
    CHECK(decision.apply == 0);
    CHECK(decision.applied_steps == 0);
    CHECK(decision.differs == static_cast<std::int64_t>(expected));
    CHECK(decision.differing_rank == 2);
    const StepRequest next = request_of(6);
    const auto sound = votes_of(next, 3);
    decide_step(sound.data(), 3, next, decision);
    CHECK(decision.apply == 0);
    CHECK(decision.differing_step == 5);
  };
  // After an exchange that was cut off, the votes of an older step remain.
  spoil([](auto& votes) { votes[2].step = 4; }, Differs::step);
  spoil([](auto& votes) { votes[2].issued_hash ^= 1; }, Differs::collectives);
  spoil([](auto& votes) { votes[2].learning_rates[1] = 0.25; }, Differs::learning_rate);
}
