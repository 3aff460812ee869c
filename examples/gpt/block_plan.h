// How the blocks run a list of operations: which operations run as one, where each activation and
// each gradient lies and for how long, and in which order the backward pass goes. No kernels, no
// memory: the same plan serves the CPU and a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "examples/gpt/attention.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/operations.h"

namespace gpt {

// Where an activation or a gradient lies. kept: in memory of the layer, from forward to backward.
// slot: in memory that all layers share, while an operation still reads it. gradient: where the
// caller has the gradient of the block's output, and gets that of its input.
struct Place {
  enum class In { nowhere, block_input, block_output, kept, slot, gradient };

  In in = In::nowhere;
  std::size_t index = 0;  // of kept ones and of slots
  // Of a joined product's: its first column, and the distance of rows, which is 0 where there are
  // no gaps between them.
  std::int64_t column = 0, distance = 0;

  bool operator==(const Place&) const = default;
};

struct PlannedOperation {
  Operation operation;
  std::size_t index = 0;  // among those of its kind
  std::int64_t in_width = 0, width = 0;
  std::vector<Place> inputs;
  Place output;
  // It runs as a part of the linear before it.
  bool in_linear_before = false;
  // How many linears run as one product, counted at the first of them: this one and the next
  // joined - 1. 0: it runs with one before it. joined_width: of the common result, in whose rows
  // theirs lie side by side.
  std::size_t joined = 1;
  std::int64_t joined_width = 0;
  // Recomputation runs it.
  bool recomputed = false;

  Place output_gradient;
  std::vector<Place> input_gradients;
  // Of each input: its gradient is there already, and this one adds to it.
  std::vector<bool> adds;
  // Of a linear that alone reads the result of a GELU: it makes the gradient of the GELU's input.
  std::optional<std::size_t> gelu;
  bool gradient_in_linear_after = false;  // of that GELU

  std::vector<Parameter> parameters() const;
};

struct BlockPlan {
  std::vector<PlannedOperation> operations;  // in the order of forward
  std::vector<std::size_t> backward;
  std::vector<std::int64_t> kept_widths, slot_widths;
  // Of the rows that attention reads.
  RowDistances attention_rows{};
  // Of the widest sum over rows: a linear's bias, a norm's weight and bias.
  std::int64_t widest_sum = 0;
};

// Whether neighbouring linears of one input, without biases, run as one product. Kernels of norms
// and sums see no gaps between rows, so only what rotary embeddings, attention and SwiGLU read is
// joined. The sums of the input's gradient then run in another order, so the bits differ.
enum class Products { apart, joined };

// Throws Error where the list is none that the walker runs, naming the operation.
BlockPlan plan_block(const Dims& dims, const std::vector<Operation>& operations,
                     Products products = Products::apart);

}  // namespace gpt
