#include "examples/gpt/rope.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "zero/base/dtype.h"

namespace gpt {
namespace {

using std::numbers::pi;

const std::vector<std::string> common_keys = {"rope_type", "type", "rope_theta", "factor",
                                              "partial_rotary_factor"};

std::vector<std::string> keys_of(const std::string& type) {
  std::vector<std::string> keys = common_keys;
  const auto add = [&](std::initializer_list<const char*> more) {
    keys.insert(keys.end(), more.begin(), more.end());
  };
  if (type == "llama3")
    add({"original_max_position_embeddings", "low_freq_factor", "high_freq_factor"});
  if (type == "yarn")
    add({"original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
         "mscale_all_dim", "truncate"});
  return keys;
}

void read_llama3(ConfigReader& reader, RopeConfig& rope) {
  rope.low_frequency = reader.number("low_freq_factor");
  rope.high_frequency = reader.number("high_freq_factor");
  if (rope.high_frequency <= rope.low_frequency)
    reader.problem("high_freq_factor must be above low_freq_factor");
}

void read_yarn(ConfigReader& reader, RopeConfig& rope) {
  const auto take = [&](const char* key, double& value) {
    if (reader.has(key)) value = reader.number(key, value);
  };
  take("attention_factor", rope.attention_factor);
  take("beta_fast", rope.beta_fast);
  take("beta_slow", rope.beta_slow);
  take("mscale", rope.mscale);
  take("mscale_all_dim", rope.mscale_of_all_dimensions);
  rope.truncate = reader.flag("truncate", true);
  if (rope.beta_fast < rope.beta_slow) reader.problem("beta_fast is below beta_slow");
}

void read_scaling(ConfigReader& reader, std::int64_t context, RopeConfig& rope) {
  rope.type = reader.text("rope_type", reader.text("type", "default"));
  reader.require("partial_rotary_factor", {1.0, nullptr});
  if (reader.has("rope_theta")) rope.theta = reader.number("rope_theta", rope.theta);
  const std::vector<std::string> supported = {"default", "linear", "dynamic", "llama3", "yarn"};
  if (std::find(supported.begin(), supported.end(), rope.type) == supported.end()) {
    reader.problem("rope_type is \"" + rope.type +
                   "\"; this trainer supports default, linear, dynamic, llama3 and yarn");
    return;
  }
  reader.require_keys(keys_of(rope.type), "rope_type " + rope.type);
  if (rope.type == "default") return;
  rope.factor = reader.number("factor");
  if (rope.factor < 1) reader.problem("factor must be 1 or more");
  if (rope.type != "llama3" && rope.type != "yarn") return;
  const char* original = "original_max_position_embeddings";
  rope.original_context =
      reader.has(original) ? reader.dimension(original, ConfigReader::largest_vocabulary) : context;
  if (rope.type == "llama3")
    read_llama3(reader, rope);
  else
    read_yarn(reader, rope);
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Pairs that turn often within the original context keep their frequency, slow ones get it divided
// by the factor, and a ramp blends those in the middle.
void apply_yarn(const RopeConfig& rope, std::int64_t channels, std::vector<double>& frequency) {
  const auto c = static_cast<double>(channels);
  // Returns the pair that makes this many turns.
  const auto pair_of = [&](double turns) {
    const double context = static_cast<double>(rope.original_context);
    return c * std::log(context / (turns * 2 * pi)) / (2 * std::log(rope.theta));
  };
  double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, c - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequency[i] *= ramp / rope.factor + (1 - ramp);
  }
}

void apply_llama3(const RopeConfig& rope, std::vector<double>& frequency) {
  const auto context = static_cast<double>(rope.original_context);
  for (double& f : frequency) {
    const double length = 2 * pi / f;
    if (length < context / rope.high_frequency) continue;
    const double smooth =
        (context / length - rope.low_frequency) / (rope.high_frequency - rope.low_frequency);
    f *= length > context / rope.low_frequency ? 1 / rope.factor
                                               : (1 - smooth) / rope.factor + smooth;
  }
}

}  // namespace

RopeConfig read_rope(ConfigReader& reader, std::int64_t context) {
  RopeConfig rope;
  rope.theta = reader.number("rope_theta", rope.theta);
  reader.require("partial_rotary_factor", {1.0, nullptr});
  // If both are present, transformers reads the first.
  auto scaling = reader.object(reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  if (scaling) read_scaling(*scaling, context, rope);
  if (rope.theta <= 1) reader.problem("rope_theta must be above 1");
  return rope;
}

void write_rope(const RopeConfig& rope, nlohmann::json& config) {
  config["rope_theta"] = rope.theta;
  config["rope_scaling"] = nullptr;
  if (rope.type == "default") return;
  nlohmann::json scaling = {{"rope_type", rope.type}, {"factor", rope.factor}};
  if (rope.original_context > 0)
    scaling["original_max_position_embeddings"] = rope.original_context;
  if (rope.type == "llama3") {
    scaling["low_freq_factor"] = rope.low_frequency;
    scaling["high_freq_factor"] = rope.high_frequency;
  }
  if (rope.type == "yarn") {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    scaling["truncate"] = rope.truncate;
    if (rope.attention_factor > 0) scaling["attention_factor"] = rope.attention_factor;
    if (rope.mscale > 0) scaling["mscale"] = rope.mscale;
    if (rope.mscale_of_all_dimensions > 0)
      scaling["mscale_all_dim"] = rope.mscale_of_all_dimensions;
  }
  config["rope_scaling"] = scaling;
}

std::vector<double> frequencies(const RopeConfig& rope, std::int64_t head_channels) {
  std::vector<double> frequency(static_cast<std::size_t>(head_channels / 2));
  for (std::size_t i = 0; i < frequency.size(); ++i)
    frequency[i] =
        std::pow(rope.theta, -2 * static_cast<double>(i) / static_cast<double>(head_channels));
  if (rope.type == "linear")
    for (double& f : frequency) f /= rope.factor;
  if (rope.type == "llama3") apply_llama3(rope, frequency);
  if (rope.type == "yarn") apply_yarn(rope, head_channels, frequency);
  return frequency;
}

double amplitude(const RopeConfig& rope) {
  if (rope.type != "yarn") return 1;
  if (rope.attention_factor > 0) return rope.attention_factor;
  if (rope.mscale > 0 && rope.mscale_of_all_dimensions > 0)
    return yarn_scale(rope.factor, rope.mscale) /
           yarn_scale(rope.factor, rope.mscale_of_all_dimensions);
  return yarn_scale(rope.factor, 1);
}

// Angles are rounded to fp32 like transformers' angles, since models are trained with these.
template <class Acc>
RopeTable<Acc>::RopeTable(const RopeConfig& rope, std::int64_t sequence, std::int64_t head_channels)
    : cosines(sequence * head_channels / 2), sines(cosines.size()) {
  const std::vector<double> frequency = frequencies(rope, head_channels);
  const double scale = amplitude(rope);
  for (std::int64_t position = 0; position < sequence; ++position)
    for (std::size_t i = 0; i < frequency.size(); ++i) {
      const double angle = static_cast<float>(position) * static_cast<float>(frequency[i]);
      const std::int64_t at = position * head_channels / 2 + static_cast<std::int64_t>(i);
      cosines.data()[at] = static_cast<Acc>(std::cos(angle) * scale);
      sines.data()[at] = static_cast<Acc>(std::sin(angle) * scale);
    }
}

template struct RopeTable<float>;
template struct RopeTable<double>;

template <class T>
Rope<T>::Rope(const RopeConfig& rope, std::int64_t sequence, std::int64_t head_channels)
    : sequence_(sequence), head_channels_(head_channels), table_(rope, sequence, head_channels) {}

template <class T>
void Rope<T>::rotate(const Rows& tensor, Direction direction, zero::ThreadPool& pool) const {
  const Rotation<T> call{tensor.data,
                         table_.cosines.data(),
                         table_.sines.data(),
                         sequence_,
                         tensor.heads,
                         head_channels_,
                         tensor.heads * head_channels_,
                         static_cast<accumulate_t<T>>(direction == Direction::forward ? 1 : -1)};
  pool.for_ranges(tensor.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels<T>().rotate(call, {begin, end});
  });
}

template <class T>
std::int64_t Rope<T>::bytes() const {
  return static_cast<std::int64_t>(table_.cosines.bytes() + table_.sines.bytes());
}

template class Rope<float>;
template class Rope<zero::bf16>;
template class Rope<zero::fp16>;
template class Rope<double>;

}  // namespace gpt
