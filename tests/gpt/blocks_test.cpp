// Lists of operations: the plan of GPT-2's list, gradients of lists that no family has, and refused
// lists.
#include "examples/gpt/cpu/blocks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "examples/gpt/cpu/layers.h"
#include "examples/gpt/model/architecture.h"
#include "tests/gpt/plain_model.h"
#include "tests/support/refusal.h"

namespace {

using namespace gpt;
using zero::tests::contains;
using List = std::vector<Operation>;

constexpr gpt::LinearOptions no_bias{.bias = false}, with_bias{};

gpt::Dims dims() {
  return {.batch = 2, .sequence = 3, .channels = 6, .heads = 2, .key_heads = 1, .head_channels = 4};
}

TEST_CASE("the plan of GPT-2's block: fusions, kept activations, shared gradients") {
  const gpt::ModelConfig config{"test", 1, 2, 8, 11, 7};
  const gpt::BlockPlan plan = gpt::block_plan_of(config);
  std::vector<std::string> fused, again;
  for (const gpt::PlannedOperation& o : plan.operations) {
    if (o.in_linear_before) fused.push_back(o.operation.output);
    if (!o.recomputed) again.push_back(o.operation.output);
  }
  CHECK(fused == std::vector<std::string>{"middle", "activated", "out"});
  CHECK(again == std::vector<std::string>{"contracted", "out"});
  CHECK(plan.operations[3].output == Place{});  // "projected" is not stored
  CHECK(plan.operations[8].gelu == std::optional<std::size_t>(7));
  CHECK(plan.kept_widths == std::vector<std::int64_t>{8, 24, 8, 8, 8, 32, 32});
  CHECK(plan.slot_widths == std::vector<std::int64_t>{32, 8});
  CHECK(plan.widest_sum == 32);
}

TEST_CASE("the plan of Llama's block: gradients of one activation add up in the list's order") {
  gpt::ModelConfig config{"test", 1, 4, 8, 11, 7, 1e-5, 0.02, "llama", 2, 2, 12};
  const gpt::BlockPlan plan = gpt::block_plan_of(config);
  std::string order;
  for (const std::size_t i : plan.backward) order += plan.operations[i].operation.output + " ";
  CHECK(order ==
        "out contracted activated gate up normed_2 middle projected attended key query query key "
        "value normed_1 ");
  CHECK(!plan.operations[1].adds[0]);
  CHECK(plan.operations[2].adds[0]);
  CHECK(plan.operations[3].adds[0]);
  CHECK(plan.kept_widths == std::vector<std::int64_t>{8, 8, 4, 4, 8, 8, 8, 12, 12, 12});
  // Slots in order: gradients of activated, up and query; of gate and key; of attended and norms'
  // results; of value.
  CHECK(plan.slot_widths == std::vector<std::int64_t>{12, 12, 8, 4});
}

TEST_CASE(
    "the plan of joined products: rows side by side, one product each of values and gradients") {
  const gpt::ModelConfig config{"test", 1, 4, 16, 11, 7, 1e-5, 0.02, "llama", 2, 4, 128};
  const gpt::BlockPlan plan = gpt::block_plan_of(config, Products::joined);
  const auto of = [&](const std::string& output) {
    return *std::find_if(plan.operations.begin(), plan.operations.end(), [&](const auto& o) {
      return o.operation.output == output && o.operation.kind != OperationKind::rope;
    });
  };
  CHECK(of("query").joined == 3);
  CHECK(of("query").joined_width == 32);
  CHECK(of("key").joined + of("value").joined + of("up").joined == 0);
  CHECK(of("gate").joined == 2);
  CHECK(of("gate").joined_width == 256);
  CHECK(of("projected").joined == 1);
  std::vector<std::size_t> products;
  for (const auto& o : plan.operations)
    if (o.operation.kind == OperationKind::linear) products.push_back(o.index);
  CHECK(products == std::vector<std::size_t>{0, 0, 0, 1, 2, 2, 3});
  CHECK(of("key").output == Place{Place::In::kept, 1, 16, 32});
  CHECK(of("value").output == Place{Place::In::kept, 1, 24, 32});
  CHECK(plan.attention_rows.query == 32);
  CHECK(plan.attention_rows.key == 32);
  CHECK(plan.kept_widths == std::vector<std::int64_t>{16, 32, 16, 16, 16, 256, 128});
  // The first slot has the gradients of gate and up, SwiGLU's result in place of up's; later those
  // of queries, keys and values. The second has those of attended and norms' results.
  CHECK(of("activated").output_gradient == of("up").output_gradient);
  CHECK(of("up").output_gradient == Place{Place::In::slot, 0, 128, 256});
  CHECK(of("gate").output_gradient == Place{Place::In::slot, 0, 0, 256});
  CHECK(plan.slot_widths == std::vector<std::int64_t>{256, 16});
}

TEST_CASE("products stay separate with biases, of odd widths, and if norms read them") {
  const auto products = [](const gpt::ModelConfig& config) {
    std::int64_t count = 0;
    for (const auto& o : gpt::block_plan_of(config, Products::joined).operations)
      count += o.operation.kind == OperationKind::linear && o.joined > 0;
    return count;
  };
  gpt::ModelConfig config{"test", 1, 4, 16, 11, 7, 1e-5, 0.02, "llama", 2, 4, 128};
  CHECK(products(config) == 4);
  config.inner = 88;
  CHECK(products(config) == 5);
  config.head_channels = 2;
  CHECK(products(config) == 7);
  config = {"test", 1, 4, 16, 11, 7, 1e-5, 0.02, "qwen2", 2, 4, 128};
  CHECK(products(config) == 6);
  config.model_type = "olmo2";
  CHECK(products(config) == 6);
}

// Parameters by name.
class Parameters final : public gpt::ParameterGradients<double> {
 public:
  using Tensors = std::map<std::string, std::vector<double>, std::less<>>;

  explicit Parameters(const gpt::BlockPlan& plan) {
    for (const gpt::PlannedOperation& o : plan.operations)
      for (const gpt::Parameter& parameter : o.parameters()) {
        const std::int64_t count = gpt::testing::elements_of(parameter.shape);
        values[parameter.name] = gpt::testing::random_values<double>(parameter.name, count);
        gradients[parameter.name].resize(values[parameter.name].size());
      }
  }
  const double* value(std::string_view name) const override {
    return values.find(name)->second.data();
  }
  double* grad(std::string_view name) override { return gradients.find(name)->second.data(); }
  zero::GradTarget<double> target(std::string_view name) override { return {grad(name), 1}; }

  Tensors values, gradients;
};

// Two layers of the list; memory holds one of them.
class TwoLayers {
 public:
  explicit TwoLayers(const List& list)
      : plan_(gpt::plan_block(dims(), list)),
        pool_(1),
        matmul_(pool_),
        blocks_(1, dims(), plan_, gpt::RopeConfig{}, matmul_),
        parameters(plan_),
        in(gpt::testing::random_values<double>("in", dims().rows() * dims().channels)) {}

  // Returns the sum of products of the result with fixed values.
  double loss() {
    middle_.resize(in.size());
    out_.resize(in.size());
    blocks_.forward(0, in.data(), parameters, middle_.data());
    blocks_.forward(1, middle_.data(), parameters, out_.data());
    double sum = 0;
    for (std::size_t i = 0; i < out_.size(); ++i) sum += out_[i] * factors_[i];
    return sum;
  }
  // Returns the gradient of the input, and adds those of parameters. Call it after loss().
  std::vector<double> backward() {
    std::vector<double> gradient = factors_;
    blocks_.backward(1, middle_.data(), parameters, gradient.data());
    blocks_.backward(0, in.data(), parameters, gradient.data());
    return gradient;
  }

 private:
  gpt::BlockPlan plan_;
  zero::ThreadPool pool_;
  gpt::Matmul matmul_;
  gpt::ListedBlocks<gpt::CpuLayers<double>> blocks_;
  std::vector<double> middle_, out_,
      factors_ = gpt::testing::random_values<double>("factors", dims().rows() * dims().channels);

 public:
  Parameters parameters;
  std::vector<double> in;
};

void check_gradients(const List& list) {
  TwoLayers layers(list);
  layers.loss();
  const std::vector<double> of_input = layers.backward();
  const auto check = [&](std::vector<double>& values, const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      constexpr double step = 1e-5;
      const double kept = values[i];
      values[i] = kept + step;
      const double above = layers.loss();
      values[i] = kept - step;
      const double below = layers.loss();
      values[i] = kept;
      CHECK(gradient[i] == doctest::Approx((above - below) / (2 * step)).epsilon(1e-5));
    }
  };
  check(layers.in, of_input);
  for (auto& [name, values] : layers.parameters.values) {
    INFO(name);
    check(values, layers.parameters.gradients.at(name));
  }
}

// 6 channels, two heads of 4 that share one head of keys and values.
List attention_of(const std::string& in, const std::string& out) {
  return {linear("qkv", in, "qkv", 16, no_bias), attention({"qkv"}, "attended"),
          linear("o", "attended", out, 6, with_bias)};
}

List joined(List list, const List& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

TEST_CASE("norms after attention: an addition of its own, and activations in shared memory") {
  check_gradients(joined(
      attention_of(block_input, "projected"),
      {layer_norm("norm", "projected", "normed"), add(block_input, "normed", block_output)}));
}

TEST_CASE("GELU apart from products, with two linears that read it") {
  check_gradients(joined(
      joined({layer_norm("ln_1", block_input, "normed"), gelu("normed", "bent")},
             attention_of("bent", "projected")),
      {add(block_input, "projected", "middle"), linear("more", "bent", "product", 6, no_bias),
       add("middle", "product", block_output)}));
}

TEST_CASE("a product that two operations read is kept, and its gradients add up") {
  check_gradients(joined(
      attention_of(block_input, "projected"),
      {add(block_input, "projected", "middle"), layer_norm("ln_1", "projected", "normed"),
       linear("more", "normed", "product", 6, no_bias), add("middle", "product", block_output)}));
}

std::string error(const List& list) {
  return zero::tests::refusal<zero::Error>([&] { gpt::plan_block(dims(), list); });
}

TEST_CASE("lists that cannot be run are refused by the operation") {
  const List good =
      joined(attention_of(block_input, "projected"), {add(block_input, "projected", block_output)});
  CHECK(error(good) == "");
  CHECK(contains(error({gelu("x", block_output)}),
                 "that writes 'out' reads 'x', which no operation before it writes"));
  CHECK(contains(error(joined(good, {gelu(block_input, block_output)})),
                 "an activation is written once"));
  CHECK(contains(error(attention_of(block_input, "projected")), "writes its output, 'out'"));
  CHECK(contains(error(attention_of(block_input, block_output)), "to its output by additions"));
  CHECK(contains(error(joined(good, {gelu(block_input, "bent")})), "has no reader"));
  CHECK(contains(error({linear("wide", block_input, "wide", 7, no_bias),
                        add(block_input, "wide", block_output)}),
                 "two widths"));
  CHECK(contains(error({attention({block_input}, block_output)}), "heads have 16"));
  CHECK(contains(error({gelu(block_input, "bent"), add(block_input, "bent", block_output)}),
                 "cannot add to the gradient of 'in'"));
  CHECK(contains(error({layer_norm("norm", block_input, "normed"), gelu("normed", "bent"),
                        add(block_input, "bent", block_output)}),
                 "would overwrite the gradient of 'in'"));
}

}  // namespace
