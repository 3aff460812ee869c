// Compares the CUDA kernels with their host twins, which tests/optim compares with the CPU's
// kernels.
#include <algorithm>

#include <doctest/doctest.h>

#include "optim/orthogonalize.h"
#include "tests/gpu/engine/device_memory.h"
#include "tests/gpu/engine/elements.h"
#include "tests/optim/support.h"
#include "tests/support/host_kernels.h"
#include "zero/base/gpu.h"

using namespace zero;
using namespace zero::optim;
using namespace zero::optim::test;

namespace {

struct Gpu {
  std::unique_ptr<Device> device = create_gpu(0);
  std::unique_ptr<ExecutionStream> stream = device->create_stream(Device::Role::compute);
  std::unique_ptr<DeviceKernels> kernels = create_cuda_kernels();
  std::unique_ptr<DeviceKernels> host = create_host_kernels();

  template <class T>
  gpu::OnDevice<T> put(const std::vector<T>& values) {
    return {*device, *stream, values};
  }
};

struct Shard {
  std::vector<float> master, states[most_states];
  std::vector<unsigned char> gradient, copy;
};

// Bits of changed elements, some of them set by a step before.
std::vector<std::uint8_t> bits_before(std::int64_t count) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(count / 8), 0x41);
}

DeviceUpdate update_of(std::int64_t count, DType dtype) {
  DeviceUpdate update;
  update.count = count;
  update.gradient_dtype = dtype;
  update.parameter_dtype = dtype == DType::fp16 ? DType::fp16 : DType::bf16;
  update.range_count = 2;
  update.groups = 2;
  return update;
}

void compare_update(Gpu& g, DeviceKernels& kernels, const OptimizerOptions& options, DType dtype,
                    Numbers numbers) {
  constexpr std::int64_t count = 128 * 301;
  Shard shard;
  shard.master = random_floats(count, Numbers::usual, 1);
  shard.gradient = encode(random_floats(count, numbers, 2), dtype);
  shard.copy.resize(count * 2);
  for (auto& state : shard.states) {
    state = random_floats(count, Numbers::usual, 3);
    for (float& value : state) value = std::fabs(value);
  }
  const std::vector<GroupRange> ranges = {{128 * 100, 0}, {count, 1}};
  std::vector<float> factors(step_candidates * 2 * most_factors);
  for (int i = 0; i < step_candidates * 2; ++i) {
    StepScalars scalars;
    scalars.step = 2 + i / 2;
    scalars.learning_rate = 1e-2f / static_cast<float>(i + 1);
    scalars.weight_decay = i % 2 ? 0.f : 0.1f;
    rule_of(options).write(options, scalars, factors.data() + i * most_factors);
  }
  std::vector<StepDecision> decision(1);
  decision[0].apply = decision[0].candidate = 1;
  decision[0].gradient_multiplier = 0.25;

  auto master = g.put(shard.master), first = g.put(shard.states[0]),
       second = g.put(shard.states[1]);
  auto gradient = g.put(shard.gradient), copy = g.put(shard.copy);
  std::vector<std::uint8_t> changed = bits_before(count);
  auto device_changed = g.put(changed);
  auto device_ranges = g.put(ranges);
  auto device_factors = g.put(factors);
  auto device_decision = g.put(decision);
  DeviceUpdate on_device = update_of(count, dtype);
  on_device.changed = device_changed.data();
  on_device.gradient = gradient.data();
  on_device.master = master.data();
  on_device.states[0] = first.data();
  on_device.states[1] = second.data();
  on_device.parameter = copy.data();
  on_device.ranges = device_ranges.data();
  on_device.factors = device_factors.data();
  g.stream->enqueue([&](Stream stream) {
    kernels.update(rule_kind(options), on_device, device_decision.data(), stream);
  });

  DeviceUpdate on_host = update_of(count, dtype);
  on_host.changed = changed.data();
  on_host.gradient = shard.gradient.data();
  on_host.master = shard.master.data();
  for (int s = 0; s < most_states; ++s) on_host.states[s] = shard.states[s].data();
  on_host.parameter = shard.copy.data();
  on_host.ranges = ranges.data();
  on_host.factors = factors.data();
  g.host->update(rule_kind(options), on_host, decision.data(), {});

  CHECK(same_bits(master.read(), shard.master));
  CHECK(same_bits(first.read(), shard.states[0]));
  CHECK(same_bits(second.read(), shard.states[1]));
  if (numbers == Numbers::usual) CHECK(copy.read() == shard.copy);
  if (numbers == Numbers::usual) CHECK(device_changed.read() == changed);
}

}  // namespace

TEST_CASE("gpu: updates have the host's bits") {
  Gpu g;
  std::vector<OptimizerOptions> rules(6);
  rules[1].type = "Adam";
  rules[1].adam_w_mode = false;
  rules[2].type = rules[3].type = "SGD";
  rules[3].momentum = 0.9;
  rules[3].nesterov = true;
  rules[4].type = "Lion";
  rules[5].type = "Adagrad";
  for (const OptimizerOptions& rule : rules)
    for (const DType dtype : floating)
      for (const Numbers numbers : {Numbers::usual, Numbers::wild}) {
        CAPTURE(rule.type);
        CAPTURE(name_of(dtype));
        compare_update(g, *g.kernels, rule, dtype, numbers);
      }
}

namespace {

// Arrays stored in 16 bits, or fp32 states with 16-bit master weights.
struct Narrow {
  DType master_dtype, state_dtype;
  std::vector<unsigned char> master, states[most_states], gradient;
};

Narrow make_narrow(std::int64_t count, DType master, DType state) {
  const auto n = static_cast<std::size_t>(count);
  Narrow made{master, state, encode(random_floats(n, Numbers::usual, 1), master), {}, {}};
  auto moments = random_floats(n, Numbers::usual, 3);
  for (float& value : moments) value = std::fabs(value);
  for (auto& array : made.states) array = encode(moments, state);
  made.gradient = encode(random_floats(n, Numbers::usual, 2), master);
  return made;
}

// All passes of a rule over one tensor of one group.
void run_rule(DeviceKernels& kernels, RuleKind rule, DeviceUpdate update, TensorSums* sums,
              float* directions, const StepDecision* decision, Stream stream) {
  if (rule_of(rule).scope == UpdateScope::whole_matrices) {
    kernels.direct(update, directions, decision, stream);
    update.gradient = directions;
    update.gradient_dtype = DType::fp32;
    return kernels.step_along(update, 0.7, decision, stream);
  }
  if (rule_of(rule).scope == UpdateScope::tensor_norms) {
    kernels.measure(rule, update, sums, decision, stream);
    kernels.take_steps(update, sums, decision, stream);
  }
  kernels.update(rule, update, decision, stream);
}

void compare_narrow(Gpu& g, const OptimizerOptions& options, DType master, DType state) {
  constexpr std::int64_t count = 128 * 67;
  Narrow shard = make_narrow(count, master, state);
  std::vector<float> factors(step_candidates * most_factors), steps(1), directions(count);
  StepScalars scalars;
  scalars.step = 3;
  scalars.learning_rate = 1e-2f;
  rule_of(options).write(options, scalars, factors.data());
  const std::vector<GroupRange> ranges = {{count, 0, 0, count - 3}};
  std::vector<StepDecision> decision(1);
  decision[0].apply = 1;
  decision[0].gradient_multiplier = 0.5;
  std::vector<TensorSums> sums(1);

  auto on_gpu = g.put(shard.master), first = g.put(shard.states[0]),
       second = g.put(shard.states[1]), gradient = g.put(shard.gradient);
  auto device_factors = g.put(factors), device_steps = g.put(steps),
       device_directions = g.put(directions);
  auto device_ranges = g.put(ranges);
  auto device_decision = g.put(decision);
  auto device_sums = g.put(sums);
  std::vector<std::uint8_t> changed = bits_before(count);
  auto device_changed = g.put(changed);
  DeviceUpdate update;
  update.count = count;
  update.gradient_dtype = update.master_dtype = master;
  update.parameter_dtype = master == DType::fp32 ? DType::bf16 : master;
  update.changed = device_changed.data();
  update.state_dtype = state;
  update.range_count = 1;
  update.gradient = gradient.data(), update.master = on_gpu.data();
  update.states[0] = first.data(), update.states[1] = second.data();
  update.ranges = device_ranges.data(), update.factors = device_factors.data();
  update.steps = device_steps.data();
  g.stream->enqueue([&](Stream stream) {
    run_rule(*g.kernels, rule_kind(options), update, device_sums.data(), device_directions.data(),
             device_decision.data(), stream);
  });
  update.changed = changed.data();
  update.gradient = shard.gradient.data(), update.master = shard.master.data();
  for (int s = 0; s < most_states; ++s) update.states[s] = shard.states[s].data();
  update.ranges = ranges.data(), update.factors = factors.data(), update.steps = steps.data();
  run_rule(*g.host, rule_kind(options), update, sums.data(), directions.data(), decision.data(),
           {});
  CHECK(on_gpu.read() == shard.master);
  CHECK(device_changed.read() == changed);
  CHECK(first.read() == shard.states[0]);
  CHECK(second.read() == shard.states[1]);
}

}  // namespace

TEST_CASE("gpu: updates of master weights and states of 16 bits have the host's bits") {
  Gpu g;
  for (const char* type : {"AdamW", "SGD", "Lion", "Adagrad", "Lamb", "Muon"})
    for (const auto& [master, state] : {std::pair{DType::bf16, DType::fp32},
                                        {DType::bf16, DType::bf16},
                                        {DType::fp16, DType::fp32}}) {
      CAPTURE(type);
      CAPTURE(name_of(master));
      CAPTURE(name_of(state));
      OptimizerOptions options = default_options(type);
      if (options.type == "SGD") options.momentum = 0.9;
      compare_narrow(g, options, master, state);
    }
}

TEST_CASE("gpu: Lamb's norms and steps are the host's") {
  Gpu g;
  constexpr std::int64_t count = 128 * 90;
  OptimizerOptions options;
  options.type = "Lamb";
  std::vector<float> factors(step_candidates * most_factors);
  for (int c = 0; c < step_candidates; ++c) {
    StepScalars scalars;
    scalars.step = c + 1;
    scalars.learning_rate = 1e-2f;
    rule_of(options).write(options, scalars, factors.data() + c * most_factors);
  }
  const std::vector<GroupRange> ranges = {{128 * 80, 0, 0, 128 * 80 - 5},
                                          {count, 0, 1, count - 127}};
  std::vector<StepDecision> decision(1);
  decision[0].apply = 1;
  decision[0].gradient_multiplier = 0.5;
  std::vector<float> master = random_floats(count, Numbers::usual, 1);
  const auto gradient = random_floats(count, Numbers::usual, 2);
  std::vector<float> first(count), second(count), steps(2);
  std::vector<TensorSums> sums(2);
  auto device_master = g.put(master), device_gradient = g.put(gradient),
       device_first = g.put(first), device_second = g.put(second), device_steps = g.put(steps),
       device_factors = g.put(factors);
  auto device_ranges = g.put(ranges);
  auto device_sums = g.put(sums);
  auto device_decision = g.put(decision);
  const auto run = [&](DeviceKernels& kernels, DeviceUpdate update, TensorSums* to,
                       const StepDecision* by, Stream stream) {
    update.count = count;
    update.range_count = 2;
    kernels.measure(RuleKind::lamb, update, to, by, stream);
    kernels.take_steps(update, to, by, stream);
    kernels.update(RuleKind::lamb, update, by, stream);
  };
  DeviceUpdate update;
  update.gradient = device_gradient.data(), update.master = device_master.data();
  update.states[0] = device_first.data(), update.states[1] = device_second.data();
  update.ranges = device_ranges.data(), update.factors = device_factors.data();
  update.steps = device_steps.data();
  g.stream->enqueue([&](Stream stream) {
    run(*g.kernels, update, device_sums.data(), device_decision.data(), stream);
  });
  update.gradient = gradient.data(), update.master = master.data();
  update.states[0] = first.data(), update.states[1] = second.data();
  update.ranges = ranges.data(), update.factors = factors.data(), update.steps = steps.data();
  run(*g.host, update, sums.data(), decision.data(), {});
  CHECK(same_bits(device_steps.read(), steps));
  CHECK(same_bits(device_master.read(), master));
  CHECK(same_bits(device_first.read(), first));
  CHECK(same_bits(device_second.read(), second));
}

TEST_CASE("gpu: matrices are made orthogonal as on the host") {
  Gpu g;
  for (const RuleKind rule : {RuleKind::muon_gram, RuleKind::muon, RuleKind::muon_clamped})
    for (const MatrixShape& shape :
         {MatrixShape{1, 5, 31, 1}, {1, 131, 65, 1}, {2, 64, 64, 1}, {1, 100, 300, 1}}) {
      CAPTURE(shape.rows);
      auto matrix = random_floats(static_cast<std::size_t>(shape.elements()), Numbers::usual, 4);
      std::vector<float> scratch(static_cast<std::size_t>(scratch_elements(shape)));
      std::vector<NormSum> norm(1);
      auto device_matrix = g.put(matrix), device_scratch = g.put(scratch);
      auto device_norm = g.put(norm);
      g.stream->enqueue([&](Stream stream) {
        orthogonalize(*g.kernels, rule,
                      {shape, device_matrix.data(), device_scratch.data(), device_norm.data()},
                      stream);
      });
      orthogonalize(*g.host, rule, {shape, matrix.data(), scratch.data(), norm.data()}, {});
      CHECK(same_bits(device_matrix.read(), matrix));
    }
}

TEST_CASE("gpu: the norm's bins are the host's") {
  Gpu g;
  for (const DType dtype : floating)
    for (const Numbers numbers : {Numbers::usual, Numbers::wild})
      for (const std::size_t size : {128u, 4096u, 4224u, 130000u}) {
        CAPTURE(size);
        const auto bytes = encode(random_floats(size, numbers, 9), dtype);
        auto gradient = g.put(bytes);
        auto sum = g.put(std::vector<NormSum>(1));
        const auto count = static_cast<std::int64_t>(size);
        g.stream->enqueue([&](Stream stream) {
          g.kernels->add_norm(gradient.data(), dtype, count, sum.data(), stream);
        });
        NormSum expected, actual = sum.read()[0];
        g.host->add_norm(bytes.data(), dtype, count, &expected, {});
        carry_limbs(actual.limbs);
        carry_limbs(expected.limbs);
        CHECK(actual == expected);
      }
}

TEST_CASE("gpu: casts, sums and quotients are the host's") {
  Gpu g;
  constexpr std::int64_t size = 1280;
  for (const DType dtype : floating)
    for (const DType other : floating) {
      CAPTURE(name_of(dtype));
      CAPTURE(name_of(other));
      auto expected = encode(random_floats(size, Numbers::wild, 1), dtype);
      const auto more = encode(random_floats(size, Numbers::wild, 2), other);
      auto sum = g.put(expected), addend = g.put(more);
      g.stream->enqueue([&](Stream stream) {
        g.kernels->accumulate(sum.data(), dtype, addend.data(), other, size, stream);
        g.kernels->divide(sum.data(), dtype, size, 3, stream);
      });
      g.host->accumulate(expected.data(), dtype, more.data(), other, size, {});
      g.host->divide(expected.data(), dtype, size, 3, {});
      CHECK(gpu::same_elements(sum.read(), expected, dtype));
      g.stream->enqueue([&](Stream stream) {
        g.kernels->cast(addend.data(), other, sum.data(), dtype, size, stream);
      });
      g.host->cast(more.data(), other, expected.data(), dtype, size, {});
      CHECK(gpu::same_elements(sum.read(), expected, dtype));
    }
}

TEST_CASE("gpu: the decision is the host's") {
  Gpu g;
  std::vector<StepRequest> request(1);
  request[0].step = 3;
  request[0].summands = 3;
  request[0].scales_loss = 1;
  request[0].clipping = 0.01;
  request[0].micro_batches = 5;
  std::vector<StepVote> words(3);
  for (int r = 0; r < 3; ++r) {
    const auto values = random_floats(1000, Numbers::usual, static_cast<unsigned>(r));
    g.host->add_norm(values.data(), DType::fp32, 1000, &words[static_cast<std::size_t>(r)].norm,
                     {});
    complete_vote(request[0], 0.1 * r, words[static_cast<std::size_t>(r)]);
  }
  auto device_words = g.put(words);
  auto device_request = g.put(request);
  auto decision = g.put(std::vector<StepDecision>(1));
  // Ranks 0 and 1 have two of five micro batches each, rank 2 has one.
  std::vector<double> losses = {0.1, 0.2, 0.3, 0.4, 0.5, 0};
  auto more = g.put(std::vector<double>{0.7, 0.7, 0.7, 0.7, 0.7, 0});
  auto sums = g.put(losses);
  g.stream->enqueue([&](Stream stream) {
    g.kernels->add_losses(more.data(), sums.data(), 6, stream);
    g.kernels->decide(device_words.data(), 3, device_request.data(), decision.data(), sums.data(),
                      stream);
  });
  for (int i = 0; i < 5; ++i) losses[static_cast<std::size_t>(i)] += 0.7;
  StepDecision expected;
  decide_step(words.data(), 3, request[0], expected, losses.data());
  const StepDecision actual = decision.read()[0];
  CHECK(actual.apply == 1);
  CHECK(actual == expected);
}

TEST_CASE("gpu: Adafactor's matrices have the host's moments and steps") {
  Gpu g;
  constexpr std::int64_t batch = 3, rows = 300, cols = 190, elements = batch * rows * cols;
  constexpr std::int64_t count = (elements + 127) / 128 * 128, cut = 128 * 700;
  constexpr std::int64_t sides = batch * (rows + cols);
  constexpr RuleKind rule = RuleKind::adafactor_matrix;
  OptimizerOptions options = default_options("Adafactor");
  options.weight_decay = 0.1;
  std::vector<float> factors(step_candidates * most_factors);
  StepScalars scalars;
  scalars.step = 3;
  scalars.learning_rate = 1e-2f;
  scalars.weight_decay = 0.1f;
  rule_of(options).write(options, scalars, factors.data());
  std::vector<StepDecision> decision(1);
  decision[0].apply = 1;
  decision[0].gradient_multiplier = 0.5;
  // Two ranges of one tensor, as of two ranks.
  const std::vector<GroupRange> ranges = {{cut, 0, 0, cut}, {count, 0, 0, elements}};
  const auto run = [&](DeviceKernels& kernels, const DeviceUpdate& update,
                       const FactoredMatrix& matrix, TensorSums* sums, const StepDecision* by,
                       Stream stream) {
    kernels.add_factor_sums(update, by, stream);
    kernels.take_factors(update, matrix, by, stream);
    kernels.measure(rule, update, sums, by, stream);
    kernels.take_steps(update, sums, by, stream);
    kernels.update(rule, update, by, stream);
  };
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    CAPTURE(name_of(dtype));
    std::vector<float> master = random_floats(count, Numbers::usual, 1);
    const auto gradient = encode(random_floats(count, Numbers::usual, 2), dtype);
    std::vector<float> moments(sides, 1e-4f), scales(sides), steps(2), decays(2);
    std::vector<NormSum> squares(sides);
    std::vector<TensorSums> sums(1);
    std::vector<unsigned char> copy(count * 2);
    const auto matrix_of = [&](float* variances, float* roots, NormSum* of_sides) {
      constexpr std::int64_t all_rows = batch * rows;
      return FactoredMatrix{batch,
                            rows,
                            cols,
                            variances,
                            variances + all_rows,
                            of_sides,
                            of_sides + all_rows,
                            roots,
                            roots + all_rows};
    };
    auto device_master = g.put(master), device_moments = g.put(moments),
         device_scales = g.put(scales), device_steps = g.put(steps), device_decays = g.put(decays),
         device_factors = g.put(factors);
    auto device_gradient = g.put(gradient), device_copy = g.put(copy);
    std::vector<std::uint8_t> changed = bits_before(count);
    auto device_changed = g.put(changed);
    auto device_squares = g.put(squares);
    auto device_sums = g.put(sums);
    auto device_ranges = g.put(ranges);
    auto device_decision = g.put(decision);
    const FactoredMatrix on_device =
        matrix_of(device_moments.data(), device_scales.data(), device_squares.data());
    const std::vector<TensorRange> at_device = {{0, elements, on_device},
                                                {cut, elements, on_device}};
    auto device_tensors = g.put(at_device);
    DeviceUpdate update;
    update.count = count;
    update.range_count = 2;
    update.gradient_dtype = dtype;
    update.parameter_dtype = dtype == DType::fp16 ? DType::fp16 : DType::bf16;
    update.master = device_master.data(), update.gradient = device_gradient.data();
    update.parameter = device_copy.data(), update.ranges = device_ranges.data();
    update.tensors = device_tensors.data(), update.factors = device_factors.data();
    update.steps = device_steps.data(), update.decays = device_decays.data();
    update.changed = device_changed.data();
    g.stream->enqueue([&](Stream stream) {
      run(*g.kernels, update, on_device, device_sums.data(), device_decision.data(), stream);
    });
    const FactoredMatrix on_host = matrix_of(moments.data(), scales.data(), squares.data());
    const std::vector<TensorRange> at_host = {{0, elements, on_host}, {cut, elements, on_host}};
    update.master = master.data(), update.gradient = gradient.data();
    update.parameter = copy.data(), update.ranges = ranges.data();
    update.tensors = at_host.data(), update.factors = factors.data();
    update.steps = steps.data(), update.decays = decays.data();
    update.changed = changed.data();
    run(*g.host, update, on_host, sums.data(), decision.data(), {});
    CHECK(device_moments.read() == moments);
    CHECK(device_master.read() == master);
    CHECK(device_copy.read() == copy);
    CHECK(device_changed.read() == changed);
    CHECK(device_steps.read() == steps);
  }
}
