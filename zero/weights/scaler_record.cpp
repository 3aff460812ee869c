#include "zero/weights/scaler_record.h"

#include <charconv>
#include <cmath>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

template <class State, class Visit>
void each_field(State& state, Visit&& visit) {
  visit("scale", state.scale);
  visit("hysteresis", state.hysteresis);
  visit("iteration", state.iteration);
  visit("last_overflow", state.last_overflow);
}

}  // namespace

Text record_of(const optim::LossScalerState& state) {
  Text record;
  each_field(state, [&](const char* name, auto value) {
    char text[32];
    record[name] = {text, std::to_chars(text, text + sizeof text, value).ptr};
  });
  return record;
}

optim::LossScalerState scaler_state_from(const std::string& path, const Text& record) {
  optim::LossScalerState state;
  each_field(state, [&](const char* name, auto& value) {
    const auto found = record.find(name);
    const std::string text = found == record.end() ? "" : found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      throw LoadError(path + ": loss_scaler: \"" + name + "\" must be a number, as text");
  });
  const bool possible = std::isnormal(static_cast<float>(state.scale)) && state.scale > 0 &&
                        state.iteration >= 0 && state.last_overflow >= -1 &&
                        state.last_overflow < state.iteration;
  if (!possible) throw LoadError(path + ": loss_scaler: no scaler can be in this state");
  return state;
}

}  // namespace zero::detail
