#include "zero/run/reduced_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace zero::detail {

namespace {

// One sum per thread.
void sum_squares(ThreadPool& pool, std::span<const std::byte> gradients, DType dtype,
                 std::vector<optim::NormBins>& partial) {
  std::fill(partial.begin(), partial.end(), optim::NormBins{});
  const auto parts = static_cast<std::int64_t>(partial.size());
  const std::int64_t count = static_cast<std::int64_t>(gradients.size()) / size_of(dtype);
  pool.run([&](int part) {
    const std::int64_t begin = count * part / parts;
    const std::int64_t end = count * (part + 1) / parts;
    optim::accumulate_norm(gradients.data() + begin * size_of(dtype), dtype, end - begin,
                           partial[part]);
  });
}

}  // namespace

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

optim::NormBins ReducedGradients::own_squares(bool read_again) {
  optim::NormBins sum;
  std::vector<optim::NormBins> partial(train_.runtime.pool().threads());
  for_all([&](const ArrayId& gradient, const Segment& segment) {
    const DType dtype = train_.store->dtype_of(gradient);
    const bool counts = train_.policy().counts(segment);
    const std::int64_t first = train_.rank() * segment.shard;
    std::int64_t end = first + segment.shard;
    if (!read_again) end = std::min(end, train_.store->end_in_memory(gradient));
    train_.store->visit(gradient, first, end, Access::read,
                        [&](std::int64_t, std::span<std::byte> part) {
                          sum_squares(train_.runtime.pool(), part, dtype, partial);
                          for (const optim::NormBins& bins : partial)
                            sum.add(counts ? bins : bins.without_sum());
                        });
  });
  if (train_.file_tier && !read_again) sum.add(train_.file_tier->take_squares());
  return sum;
}

optim::NormBins ReducedGradients::own_squares_of(std::string_view name) {
  const int index = train_.model.find(name);
  if (index < 0 || !train_.param(index).options.trainable)
    throw UsageError("no trainable parameter is named \"" + std::string(name) + "\"");
  const Segment& segment = train_.layout().segment(train_.place(index));
  const ArrayId gradient{train_.place(index), ArrayKind::gradient};
  const DType dtype = train_.store->dtype_of(gradient);
  optim::NormBins sum;
  for (const ParamRange& piece : train_.own_params(segment))
    if (piece.param == index && train_.policy().counts(segment))
      train_.store->visit(gradient, piece.segment_begin, piece.segment_begin + piece.count,
                          Access::read, [&](std::int64_t, std::span<std::byte> part) {
                            optim::accumulate_norm(part.data(), dtype,
                                                   std::ssize(part) / size_of(dtype), sum);
                          });
  return sum;
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
