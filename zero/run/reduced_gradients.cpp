#include "zero/run/reduced_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "zero/state/array_exchange.h"

namespace zero::detail {

double ReducedGradients::summands() const {
  const double ranks = train_.config.gradient_allreduce_op == "sum" ? 1 : train_.rank_count();
  return ranks * train_.losses;
}

double ReducedGradients::inverse_scale() const {
  return train_.policy().precision.predivision / (summands() * loss_scale_);
}

void ReducedGradients::for_all(const std::function<void(const ArrayId&, const Segment&)>& each) {
  for (const SegmentId& id : train_.layout().segments())
    if (const Segment& segment = train_.layout().segment(id); segment.trainable)
      each({id, ArrayKind::gradient}, segment);
}

void ReducedGradients::queue_squares(optim::StepVote* vote) {
  for_all([&](const ArrayId& gradient, const Segment& segment) {
    const Range own = train_.policy().measured(segment);
    const std::int64_t count = std::min(own.end, train_.store->end_in_memory(gradient)) - own.begin;
    if (count <= 0) return;
    optim::NormSum* sum = train_.policy().measures(segment) ? &vote->norm : &vote->uncounted;
    train_.runtime.compute().enqueue(
        [&kernels = train_.runtime.kernels(), from = train_.store->address(gradient, own.begin),
         dtype = train_.store->dtype_of(gradient), count,
         sum](Stream stream) { kernels.add_norm(from, dtype, count, sum, stream); });
  });
}

optim::NormSum ReducedGradients::squares_elsewhere(bool read_again) {
  optim::NormSum sum;
  if (!read_again) return train_.offload ? train_.offload->take_squares() : sum;
  for_all([&](const ArrayId& gradient, const Segment& segment) {
    const Range measured = train_.policy().measured(segment);
    const std::int64_t begin = std::max(measured.begin, train_.store->end_in_memory(gradient));
    if (begin >= measured.end) return;
    const DType dtype = train_.store->dtype_of(gradient);
    optim::NormSum own;
    train_.store->visit(gradient, begin, measured.end,
                        [&](std::int64_t, std::span<std::byte> part) {
                          train_.runtime.host_kernels().add_norm(
                              part.data(), dtype, std::ssize(part) / size_of(dtype), &own, {});
                        });
    add_sum(train_.policy().measures(segment) ? own : without_sum(own), sum);
  });
  return sum;
}

optim::NormSum ReducedGradients::own_squares(int param) {
  const Segment& segment = train_.layout().segment(train_.place(param));
  const ArrayId gradient{train_.place(param), ArrayKind::gradient};
  const DType dtype = train_.store->dtype_of(gradient);
  optim::NormSum sum;
  for (const ParamRange& piece : train_.own_params(segment))
    if (piece.param == param && train_.policy().counts(segment))
      train_.store->visit(gradient, piece.segment_begin, piece.segment_begin + piece.count,
                          [&](std::int64_t, std::span<std::byte> part) {
                            optim::accumulate_norm(part.data(), dtype,
                                                   std::ssize(part) / size_of(dtype), sum);
                          });
  return sum;
}

double ReducedGradients::norm(std::string_view name) {
  const int param = train_.model.find(name);
  if (param < 0 || !train_.param(param).options.trainable)
    throw UsageError("no trainable parameter is named \"" + std::string(name) + "\"");
  optim::NormSum sum = own_squares(param);
  static_assert(sizeof sum == (optim::norm_limb_count + 1) * sizeof(std::int64_t));
  for (Ranks* ranks : {&train_.ranks, train_.ranks.model_parallel()})
    if (ranks != nullptr)
      ranks->exchange("the gradient norm of " + std::string(name),
                      [&](comm::Communicator& communicator) {
                        communicator.all_reduce(&sum, optim::norm_limb_count + 1, DType::int64);
                      });
  return norm_of(sum) * inverse_scale();
}

std::vector<float> ReducedGradients::read(const ArrayId& gradient, const ParamRange& piece) {
  const DType dtype = train_.store->dtype_of(gradient);
  std::vector<std::byte> data(piece.count * size_of(dtype));
  train_.store->read(gradient, piece.segment_begin, piece.segment_begin + piece.count, data.data());
  std::vector<float> values(piece.count);
  optim::cast(data.data(), dtype, values.data(), DType::fp32, piece.count);
  return values;
}

void ReducedGradients::edit(const std::function<void(ParamShard)>& change) {
  const auto inverse = static_cast<float>(inverse_scale());
  for_all([&](const ArrayId& gradient, const Segment& segment) {
    const DType dtype = train_.store->dtype_of(gradient);
    for (const ParamRange& piece : train_.own_params(segment)) {
      std::vector<float> raw = read(gradient, piece), values = raw;
      for (float& value : values) value *= inverse;
      const std::vector<float> before = values;
      const ParamDeclaration& declaration = train_.param(piece.param);
      change({declaration.name, declaration.shape, piece.param_begin, values});
      for (std::size_t i = 0; i < values.size(); ++i)
        if (std::memcmp(&values[i], &before[i], sizeof(float)) != 0) raw[i] = values[i] / inverse;
      std::vector<std::byte> data(piece.count * size_of(dtype));
      optim::cast(raw.data(), DType::fp32, data.data(), dtype, piece.count);
      train_.store->write(gradient, piece.segment_begin, data);
    }
    if (train_.policy().updates == Portion::shard) spread_to_replicas(train_, gradient);
    transfers_.spread_gradients(gradient);
  });
  train_.runtime.communication().synchronize();
}

std::string ReducedGradients::locate_non_finite() {
  std::string found;
  for_all([&](const ArrayId& gradient, const Segment& segment) {
    for (const ParamRange& piece : train_.own_params(segment)) {
      if (!found.empty()) return;
      const std::vector<float> values = read(gradient, piece);
      const auto at = std::find_if_not(values.begin(), values.end(),
                                       [](float value) { return std::isfinite(value); });
      if (at != values.end())
        found = train_.param(piece.param).name + " (element " +
                std::to_string(piece.param_begin + (at - values.begin())) + ")";
    }
  });
  return found.empty() ? "no parameter" : found;
}

}  // namespace zero::detail
