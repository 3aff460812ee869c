// Describes a model for the planner: the units that the engine would manage, and the work of their
// kernels for a micro-batch. Plain values, without kernels or memory of the model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zero/model.h"

namespace gpt {
struct ModelConfig;
}

namespace zero::planner {

// The tokens of a rank's micro-batch.
struct Tokens {
  std::int64_t batch = 1, sequence = 0;

  std::int64_t rows() const { return batch * sequence; }
};

// A matrix product of the forward pass, [rows, in] by [in, out]; rows are the micro-batch's tokens.
// Backward has two products of the same size.
struct Product {
  std::int64_t in = 0, out = 0;
  std::int64_t count = 1;  // of such products
  double share = 1;        // of the tokens that each takes, if an expert's
};

// The kernels of a unit. Elements are of activations, read and written, per token.
struct UnitWork {
  std::string unit;
  std::vector<Product> products = {};
  std::int64_t attention_width = 0;  // query channels of causal attention; 0: none
  double forward_elements = 0, backward_elements = 0;  // of kernels other than products
  int kernels = 0;                                     // launches in forward
  // A loss head runs forward and backward at once, in its backward scope.
  bool fused = false;

  // Multiplications in forward for a sample of this number of tokens: UnitSpec::work().
  std::int64_t operations(std::int64_t tokens) const;
};

// A stage of a pipeline, whose engine holds what units pass on.
struct StagePart {
  std::int64_t layers = 0;  // counted once for each micro-batch that is in flight in it
  bool head = false;        // the loss head is in the stage
};

// The values that determine the bytes of a program's activations.
struct ActivationTerms {
  Tokens tokens;
  int element_bytes = 2;
  bool recompute = false, gpu = true;
  int threads = 1;                      // of a CPU rank
  std::optional<StagePart> stage = {};  // absent: the whole model
};

struct ModelShape {
  std::string name;
  ModelSpec spec;
  std::int64_t parameters = 0, layers = 0, hidden = 0, vocabulary = 0;
  std::int64_t context = 2048;      // tokens of a sample if the user gives none
  std::int64_t longest = 0;         // tokens of a sample at most; 0: not known
  bool has_position_table = false;  // longer samples have no row in it
  bool is_preset = false;           // of train_gpt, which refuses longer samples
  std::vector<UnitWork> work;       // of the units of `spec`, in order
  double looked_up = 0;             // parameters that take part in no product of a token
  // Bytes of activations, by the rules of activations.h.
  std::function<std::int64_t(const ActivationTerms&)> activation_bytes;
  std::string activation_model;  // the rule's name, in a few words
  // Elements of the largest parameter, which DeepSpeed's estimators call the largest layer.
  std::int64_t largest_layer = 0;
  std::vector<std::string> notices = {};  // about the files that were read

  // Multiplications and additions per token, forward and backward, without recomputation. The basis
  // of MFU, as in train_gpt.
  double flops_per_token(std::int64_t sequence) const;
};

// Says that samples are longer than the model's context, and what to do. With a table of positions,
// a longer context is another model.
std::string beyond_context(std::int64_t tokens, std::int64_t context, bool has_table);

// Throws ConfigError if samples are too long for the model, and otherwise adds a notice if they are
// beyond its context.
void check_sequence(ModelShape& shape, std::int64_t tokens);

// Parses "124M" or "7e9". Throws ConfigError that names the option.
std::int64_t parse_count(const std::string& option, const std::string& text);

// Makes the shape of a model of train_gpt.
ModelShape shape_of_trained(const gpt::ModelConfig& config);

struct DecoderSize {
  std::int64_t parameters = 0, layers = 0, hidden = 0, vocabulary = 0;  // 0: derived
};
// Returns a Llama-like decoder of this size, with untied embedding and head.
ModelShape decoder_shape(const DecoderSize& size);
// Loads a preset of train_gpt, or what a user has of a model (downloads.h). Throws ConfigError, or
// LoadError for a safetensors file.
ModelShape load_shape(const std::string& name_or_file);

struct NamedTensor {
  std::string name;
  Shape shape;
  bool trainable = true;
};
// Facts of a model that names and shapes do not have; 0: not known.
struct ModelTerms {
  std::int64_t context = 0;            // tokens
  std::int64_t query_channels = 0;     // of all heads
  std::int64_t experts_per_token = 0;  // of those of a layer
};
// Makes a shape from the names and shapes of any program's parameters, in forward order. Parameters
// that share a number ("layers.0.") form a unit, unless `unit_of` has the unit of each parameter.
ModelShape shape_of_tensors(const std::string& name, const std::vector<NamedTensor>& tensors,
                            const std::vector<std::string>& unit_of = {},
                            const ModelTerms& terms = {});

}  // namespace zero::planner
