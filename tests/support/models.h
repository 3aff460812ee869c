// Declared models of known sizes, for tests that only plan.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "zero/zero.h"

namespace models {

struct Gpt {
  std::int64_t layers, channels, vocabulary = 50257, context = 1024;
};
inline constexpr Gpt gpt2{12, 768}, gpt2_medium{24, 1024}, gpt2_xl{48, 1600};

// GPT-2 with train_gpt's declaration: tied table, one unit per block, a fused head.
inline zero::ModelSpec describe(const Gpt& g) {
  const std::int64_t c = g.channels;
  zero::ModelSpec model;
  model.unit("embed").param("wte", {g.vocabulary, c}).param("wpe", {g.context, c});
  for (int l = 0; l < g.layers; ++l) {
    zero::UnitSpec& block = model.unit("h." + std::to_string(l));
    for (const char* norm : {"ln_1", "ln_2"})
      block.param(std::string(norm) + ".weight", {c}, {.decay = false})
          .param(std::string(norm) + ".bias", {c}, {.decay = false});
    block.param("attn.weight", {c, 3 * c}).param("attn.bias", {3 * c}, {.decay = false});
    block.param("proj.weight", {c, c}).param("proj.bias", {c}, {.decay = false});
    block.param("fc.weight", {c, 4 * c}).param("fc.bias", {4 * c}, {.decay = false});
    block.param("out.weight", {4 * c, c}).param("out.bias", {c}, {.decay = false});
  }
  model.unit("head").param("weight", {c}).param("bias", {c}).uses("embed.wte").fused();
  return model;
}

// Any number of units with any sizes, some frozen, some borrowed.
inline zero::ModelSpec random(std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(draw() % std::uint64_t(n));
  };
  zero::ModelSpec model;
  const std::int64_t units = 1 + below(9);
  for (std::int64_t u = 0; u < units; ++u) {
    const std::string name = "u" + std::to_string(u);
    zero::UnitSpec& unit = model.unit(name);
    unit.param("w", {1 + below(40), 1 + below(60)}, {.trainable = below(6) != 0});
    for (std::int64_t p = below(4); p > 0; --p)
      unit.param("p" + std::to_string(p), {below(300)}, {.trainable = below(4) != 0});
    if (u > 0 && below(3) == 0) unit.uses("u" + std::to_string(below(u)) + ".w");
    if (u + 1 == units && below(2) == 0) unit.fused();
  }
  return model;
}

// A tree of units, some of them optional or repeated. `order` is a forward order of it, with
// repetitions other than the declared ones.
inline zero::ModelSpec random_tree(std::uint64_t seed, std::vector<int>& order) {
  std::mt19937_64 draw(seed);
  const auto below = [&](int n) { return static_cast<int>(draw() % std::uint64_t(n)); };
  zero::ModelSpec model;
  std::vector<std::string> names;
  std::vector<int> depths, open;  // the last unit and its parents
  for (int u = 0; u < 2 + below(9); ++u) {
    names.push_back("u" + std::to_string(u));
    open.resize(static_cast<std::size_t>(below(static_cast<int>(open.size()) + 1)));
    zero::UnitSpec& unit = model.unit(names.back());
    if (!open.empty()) unit.within(names[open.back()]);
    if (below(8) != 0) unit.param("w", {1 + below(2000)}, {.trainable = below(5) != 0});
    unit.param("v", {1 + below(300)}, {.trainable = below(3) != 0});
    if (below(2) == 0) unit.optional();
    open.push_back(u);
    order.push_back(u);
    if (below(3) == 0) order.push_back(u);
  }
  if (below(2) == 0) model.again(names.back());
  return model;
}

}  // namespace models
