#include "examples/gpt/cpu/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "zero/base/dtype.h"

namespace gpt {
namespace {

using std::numbers::pi;

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Pairs that turn often within the original context keep their frequency, slow pairs have it
// divided by the factor, and a ramp blends the pairs in the middle.
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
void Rope<T>::rotate_at(std::int64_t position, T* row, std::int64_t heads) const {
  const std::int64_t at = position * head_channels_ / 2;
  const Rotation<T> call{row,
                         table_.cosines.data() + at,
                         table_.sines.data() + at,
                         1,
                         heads,
                         head_channels_,
                         heads * head_channels_,
                         1};
  kernels<T>().rotate(call, {0, 1});
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
