// A block of a model family as data: the list of its operations. Declarations, parameter counts,
// buffers, the backward pass and fusions follow from the list (block_plan.h, blocks.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "zero/zero.h"

namespace gpt {

// Hugging Face stores W like Conv1D (GPT-2) or like nn.Linear.
enum class WeightLayout { in_out, out_in };

// Start value of a parameter. residual: normal, divided by sqrt(2 layers).
enum class Initial { zero, one, normal, residual };

struct Parameter {
  std::string name;  // within the unit
  zero::Shape shape;
  Initial initial = Initial::normal;
};

enum class OperationKind { norm, linear, attention, rope, gelu, swiglu, add };

// Activations have names and are [rows, width]. block_input and block_output are the block's own;
// every other activation is written by one operation and read by later operations.
struct Operation {
  OperationKind kind;
  std::vector<std::string> inputs;
  std::string output;
  std::string weight = {}, bias = {};  // of norms and linears; empty: no bias
  std::int64_t width = 0;              // of a linear's output
  WeightLayout layout = WeightLayout::in_out;
  Initial initial = Initial::normal;  // of a linear's weight
};

inline const std::string block_input = "in", block_output = "out";

inline Operation layer_norm(const std::string& name, const std::string& in,
                            const std::string& out) {
  return {OperationKind::norm, {in}, out, name + ".weight", name + ".bias"};
}
inline Operation rms_norm(const std::string& name, const std::string& in, const std::string& out) {
  return {OperationKind::norm, {in}, out, name + ".weight"};
}

struct LinearOptions {
  bool bias = true;
  WeightLayout layout = WeightLayout::out_in;
  Initial initial = Initial::normal;
};
// out = in W + b, `width` wide.
inline Operation linear(const std::string& name, const std::string& in, const std::string& out,
                        std::int64_t width, const LinearOptions& options) {
  return {OperationKind::linear,
          {in},
          out,
          name + ".weight",
          options.bias ? name + ".bias" : "",
          width,
          options.layout,
          options.initial};
}

// Causal attention, on an activation that holds queries, keys and values in each row, or on three.
inline Operation attention(std::vector<std::string> queries_keys_values, const std::string& out) {
  return {OperationKind::attention, std::move(queries_keys_values), out};
}
// Rotary embedding, in place, on the result of the linear or norm just before it.
inline Operation rope(const std::string& activation) {
  return {OperationKind::rope, {activation}, activation};
}
inline Operation gelu(const std::string& in, const std::string& out) {
  return {OperationKind::gelu, {in}, out};
}
// out = silu(gate) * up
inline Operation swiglu(const std::string& gate, const std::string& up, const std::string& out) {
  return {OperationKind::swiglu, {gate, up}, out};
}
inline Operation add(const std::string& a, const std::string& b, const std::string& out) {
  return {OperationKind::add, {a, b}, out};
}

}  // namespace gpt
