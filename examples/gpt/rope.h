// Rotary position embedding as Hugging Face configures it: a frequency per pair of channels,
// changed by rope_scaling for contexts beyond that of pretraining. Formulas of transformers'
// modeling_rope_utils.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "examples/gpt/buffer.h"
#include "examples/gpt/config_reader.h"
#include "examples/gpt/kernels.h"
#include "zero/base/cpu/thread_pool.h"

namespace gpt {

struct RopeConfig {
  std::string type = "default";  // default, linear, dynamic, llama3 or yarn
  double theta = 10000, factor = 1;
  std::int64_t original_context = 0;                // llama3 and yarn
  double low_frequency = 1, high_frequency = 4;     // llama3
  double attention_factor = 0;                      // yarn; 0: from factor and mscale
  double beta_fast = 32, beta_slow = 1;             // yarn
  double mscale = 0, mscale_of_all_dimensions = 0;  // yarn; 0: not given
  bool truncate = true;                             // yarn
};

// Reads rope_theta with rope_scaling, or rope_parameters. Unsupported values are reported as
// problems of the reader.
RopeConfig read_rope(ConfigReader& reader, std::int64_t context);
// Adds rope_theta and rope_scaling.
void write_rope(const RopeConfig& rope, nlohmann::json& config);

// Returns the angle per position of each pair of channels, valid within the model's context, since
// "dynamic" changes nothing there.
std::vector<double> frequencies(const RopeConfig& rope, std::int64_t head_channels);
// Returns the factor of sines and cosines.
double amplitude(const RopeConfig& rope);
// Sines and cosines of every position and pair, [sequence, head_channels / 2]; Acc: float or
// double.
template <class Acc>
struct RopeTable {
  RopeTable(const RopeConfig& rope, std::int64_t sequence, std::int64_t head_channels);

  Buffer<Acc> cosines, sines;
};

// Rotates queries and keys, [rows, heads, head channels], by their positions, and gradients back.
template <class T>
class Rope {
 public:
  Rope(const RopeConfig& rope, std::int64_t sequence, std::int64_t head_channels);

  enum class Direction { forward, back };
  struct Rows {
    T* data;
    std::int64_t rows, heads;
  };
  void rotate(const Rows& tensor, Direction direction, zero::ThreadPool& pool) const;
  std::int64_t bytes() const;

 private:
  std::int64_t sequence_, head_channels_;
  RopeTable<accumulate_t<T>> table_;
};

}  // namespace gpt
