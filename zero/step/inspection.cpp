// The part of Stepper that gives access to gradients, between the last reduction and the update:
// for programs (StepOptions::inspect), and to find non-finite gradients.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "optim/gradient_norm.h"
#include "zero/state/array_exchange.h"
#include "zero/state/element_visits.h"
#include "zero/step/stepper.h"

namespace zero::detail {

void Stepper::add_squares(const ArrayId& gradient, const Range& range, optim::NormSum& sum) const {
  TrainState& train = parts_.train;
  const DType dtype = train.store->dtype_of(gradient);
  train.store->visit(gradient, range.begin, range.end,
                     [&](std::int64_t, std::span<std::byte> part) {
                       train.runtime.host_kernels().add_norm(
                           part.data(), dtype, std::ssize(part) / size_of(dtype), &sum, {});
                     });
}

double Stepper::norm_over_ranks(optim::NormSum own, const std::string& what) {
  static_assert(sizeof own == (optim::norm_limb_count + 1) * sizeof(std::int64_t));
  parts_.train.everyone().exchange(
      "the gradient norm of " + what, [&](comm::Communicator& communicator) {
        communicator.all_reduce(&own, optim::norm_limb_count + 1, DType::int64);
      });
  return norm_of(own) * inverse_gradient_scale();
}

double Stepper::gradient_norm() {
  if (!gradients_edited_) return in_flight_.back()->decision.norm;
  return norm_over_ranks(own_squares(true), "edited gradients");
}

double Stepper::gradient_norm(std::string_view name) {
  TrainState& train = parts_.train;
  const int param = train.model.find(name);
  const bool elsewhere = param < 0 && train.stages.home_of(name).place >= 0;
  if (elsewhere) return norm_over_ranks({}, std::string(name));
  if (param < 0 || !train.param(param).options.trainable)
    throw UsageError("no trainable parameter is named \"" + std::string(name) + "\"");
  const Place& place = train.place(param);
  const Segment& segment = train.layout().segment(place);
  optim::NormSum sum;
  for (const ParamRange& piece : train.own_params(segment))
    if (piece.param == param && train.policy().counts(segment))
      add_squares({place, ArrayKind::gradient_shard}, piece.range(), sum);
  return norm_over_ranks(sum, std::string(name));
}

void Stepper::edit_gradients(const std::function<void(ParamShard)>& change) {
  TrainState& train = parts_.train;
  const auto inverse = static_cast<float>(inverse_gradient_scale());
  for_gradients([&](const ArrayId& gradient, const Segment& segment) {
    for (const ParamRange& piece : train.own_params(segment)) {
      std::vector<float> raw = train.store->read_floats(gradient, piece.range()), values = raw;
      for (float& value : values) value *= inverse;
      const std::vector<float> before = values;
      const ParamDeclaration& declaration = train.param(piece.param);
      change({declaration.name, declaration.shape, piece.param_begin, values});
      for (std::size_t i = 0; i < values.size(); ++i)
        if (std::memcmp(&values[i], &before[i], sizeof(float)) != 0) raw[i] = values[i] / inverse;
      train.store->write(gradient, piece.segment_begin, DType::fp32, std::as_bytes(std::span(raw)));
    }
    spread_to_replicas(train, gradient);
    parts_.transfers.spread_gradients(gradient);
  });
  train.runtime.communication().synchronize();
  gradients_edited_ = true;
}

// Changes state, as updates do: a save in the background copies it first. Offloaded state that
// updates need first is in its slots, or on the way there.
void Stepper::visit_elements(const ElementVisitor& visitor) {
  ExecutionStream& compute = parts_.train.runtime.compute();
  for (int f = 0; f < std::ssize(parts_.train.layout().flat_units); ++f)
    parts_.checkpoints.precede_by_copies(f, compute);
  compute.synchronize();
  parts_.offload.finish();
  detail::visit_elements(parts_.train, visitor, static_cast<float>(inverse_gradient_scale()));
  parts_.offload.load_again();
}

std::string Stepper::locate_non_finite() const {
  const TrainState& train = parts_.train;
  std::string found;
  for_gradients([&](const ArrayId& gradient, const Segment& segment) {
    for (const ParamRange& piece : train.own_params(segment)) {
      if (!found.empty()) return;
      const std::vector<float> values = train.store->read_floats(gradient, piece.range());
      const auto at = std::find_if_not(values.begin(), values.end(),
                                       [](float value) { return std::isfinite(value); });
      if (at != values.end())
        found = train.param(piece.param).name + " (element " +
                std::to_string(piece.param_begin + (at - values.begin())) + ")";
    }
  });
  return found.empty() ? "no parameter" : found;
}

}  // namespace zero::detail
