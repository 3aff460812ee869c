// A model as the planner sees it: the units that the engine would manage, and the work of their
// kernels for a micro-batch. Plain values; neither kernels nor memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "zero/model.h"

namespace zero::planner {

// The tokens of a rank's micro-batch.
struct Tokens {
  std::int64_t batch = 1, sequence = 0;

  std::int64_t rows() const { return batch * sequence; }
};

// A matrix product of the forward pass, [rows, in] by [in, out]; rows are the micro-batch's tokens.
// Backward has two of its size.
struct Product {
  std::int64_t in = 0, out = 0;
};

// Kernels of one unit. Elements are those of activations, read and written, per token.
struct UnitWork {
  std::string unit;
  std::vector<Product> products = {};
  std::int64_t attention_width = 0;  // query channels of causal attention; 0: none
  double forward_elements = 0, backward_elements = 0;  // of kernels other than products
  int kernels = 0;                                     // launches in forward
  // A loss head runs forward and backward at once, in its backward scope.
  bool fused = false;
};

// Bytes that a program keeps and works with, outside of the engine.
struct ActivationTerms {
  Tokens tokens;
  int element_bytes = 2;
  bool recompute = false, gpu = true;
  int threads = 1;  // of a CPU rank
};

struct ModelShape {
  std::string name;
  ModelSpec spec;
  std::int64_t parameters = 0, layers = 0, hidden = 0, vocabulary = 0;
  std::int64_t context = 2048;  // tokens of a sample if the user gives none
  std::vector<UnitWork> work;   // of the units of `spec`, in their order
  double looked_up = 0;         // parameters that take part in no product
  // Bytes of activations, by the rules of activations.h.
  std::function<std::int64_t(const ActivationTerms&)> activation_bytes;
  std::string activation_model;  // in a few words
  // Elements of the largest parameter: the layer that DeepSpeed's estimators mean.
  std::int64_t largest_layer = 0;

  // Multiplications and additions per token, forward and backward, without recomputation: the
  // measure of MFU, as of train_gpt.
  double flops_per_token(std::int64_t sequence) const;
};

// "124M", "7e9". Throws ConfigError that names the option.
std::int64_t parse_count(const std::string& option, const std::string& text);

struct DecoderSize {
  std::int64_t parameters = 0, layers = 0, hidden = 0, vocabulary = 0;  // 0: derived
};
// A Llama-like decoder of this many parameters, with untied embedding and head.
ModelShape decoder_shape(const DecoderSize& size);
// A preset or a config.json of the trainer, or the header of a safetensors file. Throws
// ConfigError, or LoadError for the last.
ModelShape load_shape(const std::string& name_or_file);

struct NamedTensor {
  std::string name;
  Shape shape;
  bool trainable = true;
};
// A model of any program, from the names and shapes of its parameters in forward order: those that
// share a number ("layers.0.") form a unit. `unit_of`: the units' names, if the program knows them.
ModelShape shape_of_tensors(const std::string& name, const std::vector<NamedTensor>& tensors,
                            const std::vector<std::string>& unit_of = {});

}  // namespace zero::planner
