#include "tools/planner/kernel_time.h"

#include <algorithm>
#include <cmath>

#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::planner {
namespace {

struct Style {
  const char* name;
  double passes;  // over the elements; fused kernels make one
};
// Counted on a Llama block, in which a norm in fp32, the rotary embedding and SwiGLU are 3 to 6
// kernels each in eager PyTorch.
constexpr Style styles[] = {{"fused", 1}, {"compiled", 1.3}, {"eager", 3.5}};

// Attention has two products in forward and five in backward.
constexpr double attention_backward = 2.5;

}  // namespace

Kernels kernels_named(const std::string& name) {
  for (int i = 0; i < std::ssize(styles); ++i)
    if (name == styles[i].name) return static_cast<Kernels>(i);
  throw ConfigError("--kernels " + printable(name) + ": expected fused, compiled or eager");
}

double KernelTime::memory_rate() const {
  const Device& device = cluster_.device;
  return device.gpu ? device.memory_rate : device.memory_rate / cluster_.ranks_on_node();
}

double KernelTime::product(std::int64_t m, std::int64_t k, std::int64_t n) const {
  double share = cluster_.device.product_share;
  double bytes = 0, flops = 2;
  for (const auto& [a, b] : {std::pair{m, k}, {k, n}, {m, n}})
    bytes += static_cast<double>(a) * static_cast<double>(b) * element_bytes_;
  for (const std::int64_t size : {m, k, n}) {
    const auto elements = static_cast<double>(size);
    share *= elements / (elements + cluster_.device.product_ramp);
    flops *= elements;
  }
  return std::max(flops / (peak() * share), bytes / memory_rate()) + launch();
}

// Returns the time of the unit's products and of kernels that stream `elements` per token.
double KernelTime::pass(const UnitWork& work, const Tokens& tokens, double elements) const {
  double seconds = 0;
  for (const Product& each : work.products) {
    const double rows = each.share * static_cast<double>(tokens.rows());
    seconds += static_cast<double>(each.count) *
               product(std::max<std::int64_t>(1, std::llround(rows)), each.in, each.out);
  }
  const double passes = styles[static_cast<int>(kernels_)].passes;
  const double bytes = elements * static_cast<double>(tokens.rows()) * element_bytes_;
  return seconds + passes * bytes / memory_rate() + passes * work.kernels * launch();
}

double KernelTime::forward(const UnitWork& work, const Tokens& tokens) const {
  const double attended = static_cast<double>(tokens.rows()) *
                          static_cast<double>(tokens.sequence) *
                          static_cast<double>(work.attention_width);
  // Causal: half of 4 x width operations for each pair of tokens.
  const double attention = 2 * attended / (peak() * cluster_.device.attention_share);
  return pass(work, tokens, work.forward_elements) + attention;
}

double KernelTime::backward(const UnitWork& work, const Tokens& tokens, bool recompute) const {
  const double forward_once = forward(work, tokens);
  const double attention = forward_once - pass(work, tokens, work.forward_elements);
  const double products = pass(work, tokens, 0);
  const double own =
      products + pass(work, tokens, work.backward_elements) + attention_backward * attention;
  return own + (recompute || work.fused ? forward_once : 0);
}

}  // namespace zero::planner
