// Rotary position embedding as Hugging Face configures it: a frequency per pair of channels, which
// rope_scaling changes for contexts beyond the one of pretraining. Formulas of transformers'
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
  double attention_factor = 0;                      // yarn; 0: by factor and mscale
  double beta_fast = 32, beta_slow = 1;             // yarn
  double mscale = 0, mscale_of_all_dimensions = 0;  // yarn; 0: not given
  bool truncate = true;                             // yarn
};

// From rope_theta with rope_scaling, or from rope_parameters. What is not supported is a problem of
// the reader's.
RopeConfig read_rope(ConfigReader& reader, std::int64_t context);
// Adds rope_theta and rope_scaling.
void write_rope(const RopeConfig& rope, nlohmann::json& config);

// Angle per position of each pair of channels. Within the model's context: "dynamic" changes
// nothing there.
std::vector<double> frequencies(const RopeConfig& rope, std::int64_t head_channels);
// What sines and cosines are multiplied by.
double amplitude(const RopeConfig& rope);
// Of every position and pair, [sequence, head_channels / 2]; Acc: float or double.
template <class Acc>
struct RopeTable {
  RopeTable(const RopeConfig& rope, std::int64_t sequence, std::int64_t head_channels);

  Buffer<Acc> cosines, sines;
};

// Turns queries and keys, [rows, heads, head channels], by their positions; and gradients back.
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
