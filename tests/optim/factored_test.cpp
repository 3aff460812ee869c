// Adafactor's factored second moments: exact sums, their independence of cuts, and the updates.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "optim/factored_matrix.h"
#include "tests/optim/device_support.h"
#include "zero/base/cpu/thread_pool.h"

using namespace zero;
using namespace zero::optim;
using namespace zero::optim::test;

namespace {

constexpr std::int64_t batch = 3, rows = 19, cols = 47, elements = batch * rows * cols;

std::int64_t padded(std::int64_t count) {
  return (count + 127) / 128 * 128;
}

// A tensor on one rank, whose elements are updated in parts, as by ranks.
struct Tensor {
  explicit Tensor(DType dtype)
      : gradient_dtype(dtype),
        gradient(encode(random_floats(padded(elements), Numbers::usual, 5), dtype)),
        master(random_floats(padded(elements), Numbers::usual, 6)),
        moments(random_floats(batch * (rows + cols), Numbers::usual, 7)),
        scales(moments.size()),
        sums(moments.size()) {
    for (float& moment : moments) moment *= moment;
    options = default_options("Adafactor");
    options.weight_decay = 0.1;
    factors = factors_for(options);
    matrix = {batch, rows, cols};
    matrix.row_var = moments.data(), matrix.col_var = moments.data() + batch * rows;
    matrix.row_scale = scales.data(), matrix.col_scale = scales.data() + batch * rows;
    matrix.row_sums = sums.data(), matrix.col_sums = sums.data() + batch * rows;
  }
  Tensor(const Tensor&) = delete;

  struct Part {
    GroupRange range;
    TensorRange tensor;
    float step = 0, decay = 0;
    DeviceUpdate update = {};
  };

  void prepare(Part& part, std::int64_t begin, std::int64_t end) {
    part.range = {end - begin, 1, 0, std::min(end, elements) - begin};
    part.tensor = {begin, elements, matrix};
    DeviceUpdate& update = part.update;
    update.count = end - begin;
    update.gradient = gradient.data() + begin * size_of(gradient_dtype);
    update.gradient_dtype = gradient_dtype;
    update.master = master.data() + begin;
    update.ranges = &part.range, update.tensors = &part.tensor;
    update.range_count = 1;
    update.factors = factors.data();
    update.groups = 2, update.group = 1;
    update.steps = &part.step, update.decays = &part.decay;
  }

  void step(const std::vector<std::int64_t>& cuts, const StepDecision& decision, int threads = 1) {
    ThreadPool pool(threads);
    const auto kernels = create_host_kernels(pool);
    constexpr RuleKind rule = RuleKind::adafactor_matrix;
    std::vector<Part> parts(cuts.size() - 1);
    for (std::size_t p = 0; p < parts.size(); ++p) prepare(parts[p], cuts[p], cuts[p + 1]);
    for (Part& part : parts) kernels->add_factor_sums(part.update, &decision, {});
    kernels->take_factors(parts[0].update, matrix, &decision, {});
    for (Part& part : parts) kernels->measure(rule, part.update, &norms, &decision, {});
    for (Part& part : parts) kernels->take_steps(part.update, &norms, &decision, {});
    for (Part& part : parts) kernels->update(rule, part.update, &decision, {});
  }

  OptimizerOptions options;
  std::vector<float> factors;
  DType gradient_dtype;
  std::vector<unsigned char> gradient;
  std::vector<float> master, moments, scales;
  std::vector<NormSum> sums;
  FactoredMatrix matrix;
  TensorSums norms;
};

}  // namespace

TEST_CASE("a square that is added alone is the square of a sum over a tile") {
  for (const Numbers kind : {Numbers::usual, Numbers::wild}) {
    std::vector<float> values = random_floats(3 * norm_tile, kind, 11);
    values.insert(values.end(), {0.f, -0.f, 1e-30f, 3e38f, -1e-45f, INFINITY, NAN});
    NormSum one, all;
    for (const float value : values) add_square_to(value, one);
    carry_limbs(one.limbs);
    accumulate_norm(values.data(), DType::fp32, std::ssize(values), all);
    CHECK(one == all);
  }
}

TEST_CASE("a factored step has the same bits for any cut of the tensor and number of threads") {
  const StepDecision decision = applying();
  for (const DType dtype : floating) {
    CAPTURE(name_of(dtype));
    Tensor whole(dtype);
    const std::vector<float> before = whole.master;
    whole.step({0, padded(elements)}, decision);
    CHECK(whole.master != before);
    for (const auto& cuts : {std::vector<std::int64_t>{0, 128, 1024, padded(elements)},
                             {0, 896, 1792, padded(elements)}}) {
      Tensor cut(dtype);
      cut.step(cuts, decision, 3);
      CHECK(same_bits(cut.master, whole.master));
      CHECK(same_bits(cut.moments, whole.moments));
    }
    CHECK(std::equal(before.begin() + elements, before.end(), whole.master.begin() + elements));
  }
}

TEST_CASE("a factored step that is skipped changes nothing") {
  Tensor tensor(DType::fp32);
  const std::vector<float> master = tensor.master, moments = tensor.moments;
  tensor.step({0, padded(elements)}, StepDecision());
  CHECK(same_bits(tensor.master, master));
  CHECK(same_bits(tensor.moments, moments));
}

TEST_CASE("rows without gradients take no step, and no value becomes NaN") {
  Tensor tensor(DType::fp32);
  std::fill(tensor.moments.begin(), tensor.moments.end(), 0.f);
  auto* gradients = reinterpret_cast<float*>(tensor.gradient.data());
  std::fill_n(gradients, 2 * cols, 0.f);
  const std::vector<float> before = tensor.master;
  tensor.step({0, padded(elements)}, applying());
  CHECK(std::ranges::all_of(tensor.master, [](float value) { return std::isfinite(value); }));
  const float change = tensor.master[0] - before[0];  // weight decay is 0 in group 1
  CHECK(change == 0);
  CHECK(tensor.master[2 * cols] != before[2 * cols]);
}
