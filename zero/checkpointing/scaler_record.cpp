#include "zero/checkpointing/scaler_record.h"

#include <charconv>
#include <cmath>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

constexpr const char* scale_name = "scale";
constexpr const char* hysteresis_name = "hysteresis";
constexpr const char* iteration_name = "iteration";
constexpr const char* last_overflow_name = "last_overflow";

template <class T>
std::string text_of(T value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

template <class T>
T number_of(const std::string& path, const Text& record, const char* name) {
  const auto found = record.find(name);
  const std::string text = found == record.end() ? "" : found->second;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    throw LoadError(path + ": loss_scaler: \"" + name + "\" must be a number, as text");
  return value;
}

}  // namespace

Text record_of(const optim::LossScalerState& state) {
  return {{scale_name, text_of(state.scale)},
          {hysteresis_name, text_of(state.hysteresis)},
          {iteration_name, text_of(state.iteration)},
          {last_overflow_name, text_of(state.last_overflow)}};
}

optim::LossScalerState scaler_state_from(const std::string& path, const Text& record) {
  const optim::LossScalerState state{number_of<double>(path, record, scale_name),
                                     number_of<std::int64_t>(path, record, hysteresis_name),
                                     number_of<std::int64_t>(path, record, iteration_name),
                                     number_of<std::int64_t>(path, record, last_overflow_name)};
  const bool possible = std::isnormal(static_cast<float>(state.scale)) && state.scale > 0 &&
                        state.iteration >= 0 && state.last_overflow >= -1 &&
                        state.last_overflow < state.iteration;
  if (!possible) throw LoadError(path + ": loss_scaler: no scaler can be in this state");
  return state;
}

}  // namespace zero::detail
