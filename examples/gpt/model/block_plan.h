// The plan by which blocks run a list of operations: fused operations, the place and lifetime of
// each activation and gradient, and the order of the backward pass. Has no kernels and no memory,
// so that the same plan serves the CPU and a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "examples/gpt/model/dims.h"
#include "examples/gpt/model/operations.h"

namespace gpt {

// The place of an activation or a gradient. kept: in memory of the layer, from forward to backward.
// slot: in memory that all layers share, until no operation reads it any more. gradient: the
// caller's buffer with the gradient of the block's output, later of the input.
struct Place {
  enum class In { nowhere, block_input, block_output, kept, slot, gradient };

  In in = In::nowhere;
  std::size_t index = 0;  // among kept places or among slots
  // Set for joined products: the first column, and the distance of rows, 0 without gaps.
  std::int64_t column = 0, distance = 0;

  bool operator==(const Place&) const = default;
};

struct PlannedOperation {
  Operation operation;
  std::size_t index = 0;  // among operations of the same kind
  std::int64_t in_width = 0, width = 0;
  std::vector<Place> inputs;
  Place output;
  // True if this runs as a part of the linear before.
  bool in_linear_before = false;
  // The number of linears that run as one product, stored at the first: this linear and the next
  // (joined - 1). 0 if run with an earlier linear. joined_width: the width of a row of the common
  // result, in which the linears' rows are adjacent.
  std::size_t joined = 1;
  std::int64_t joined_width = 0;
  // True if recomputation runs this operation.
  bool recomputed = false;

  Place output_gradient;
  std::vector<Place> input_gradients;
  // For each input: true if a gradient exists already, so that this operation adds to it.
  std::vector<bool> adds;
  // Set for a linear that alone reads the result of a GELU, and computes the gradient of the GELU's
  // input.
  std::optional<std::size_t> gelu;
  bool gradient_in_linear_after = false;  // of that GELU

  std::vector<Parameter> parameters() const;
};

struct BlockPlan {
  std::vector<PlannedOperation> operations;  // in the order of forward
  std::vector<std::size_t> backward;
  std::vector<std::int64_t> kept_widths, slot_widths;
  // Distances of the rows that attention reads.
  RowDistances attention_rows{};
  // Width of the widest sum over rows: a linear's bias, or a norm's weight and bias.
  std::int64_t widest_sum = 0;
};

// Whether neighboring linears of the same input run as one product if without biases. Kernels of
// norms and sums accept no gaps between rows, so only results that rotary embeddings, attention and
// SwiGLU read are joined. Joining changes the order of the input gradient's sums, and so the bits.
enum class Products { apart, joined };

// Throws Error, naming the operation, if the walker cannot run the list.
BlockPlan plan_block(const Dims& dims, const std::vector<Operation>& operations,
                     Products products = Products::apart);

}  // namespace gpt
