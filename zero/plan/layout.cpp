#include "zero/plan/layout.h"

#include <algorithm>
#include <limits>

#include "zero/base/hash.h"

namespace zero::detail {

namespace {

std::int64_t aligned(std::int64_t elements, std::int64_t alignment) {
  return (elements + alignment - 1) / alignment * alignment;
}

// Takes, in declaration order, the parameters that still fit the model-wide limit, as DeepSpeed
// does.
std::vector<bool> persistent_params(const Model& model, const ZeroOptions& options) {
  const std::int64_t threshold = options.param_persistence_threshold.value_or(0);
  std::int64_t room =
      options.model_persistence_threshold.value_or(std::numeric_limits<std::int64_t>::max());
  std::vector<bool> persistent(model.params.size(), false);
  for (int i = 0; i < std::ssize(model.params) && threshold > 0; ++i) {
    const std::int64_t elements = model.params[i].elements;
    if (elements > threshold || elements > room) continue;
    persistent[i] = true;
    room -= elements;
  }
  return persistent;
}

std::vector<int> heights_of(const Model& model) {
  std::vector<int> heights(model.units.size(), 0);
  for (int u = static_cast<int>(model.units.size()) - 1; u >= 0; --u)
    if (const int parent = model.units[u].parent; parent >= 0)
      heights[parent] = std::max(heights[parent], heights[u] + 1);
  return heights;
}

FlatUnit make_flat_unit(const Model& model, std::string name, Residence residence,
                        const std::vector<int>& params, int ranks, const WireFormats& wire) {
  const std::int64_t alignment = wire.alignment();
  FlatUnit unit{std::move(name), residence, {}, {}};
  // Trainable segments first, so that gradients mirror the front of the parameters.
  for (const bool trainable : {true, false})
    for (const int index : params) {
      const ParamOptions& options = model.params[index].options;
      if (options.trainable != trainable) continue;
      const bool encoded = wire.encodes_gather(model, index, residence == Residence::persistent);
      const auto same_kind = [&](const Segment& s) {
        return s.trainable == trainable && s.dtype == options.dtype && s.split == options.split &&
               s.encoded == encoded;
      };
      auto segment = std::find_if(unit.segments.begin(), unit.segments.end(), same_kind);
      if (segment == unit.segments.end())
        segment = unit.segments.insert(unit.segments.end(),
                                       Segment{.dtype = options.dtype,
                                               .trainable = trainable,
                                               .split = options.split,
                                               .elsewhere = model.params[index].elsewhere,
                                               .encoded = encoded,
                                               .params = {}});
      segment->params.push_back({index, segment->length});
      segment->length += aligned(model.params[index].elements, alignment);
    }
  // A segment of empty parameters gets padding, so that every flat unit has memory and can be sent.
  for (Segment& segment : unit.segments) {
    segment.slice = std::max(alignment, aligned((segment.length + ranks - 1) / ranks, alignment));
    segment.length = segment.slice * ranks;
  }
  return unit;
}

}  // namespace

std::int64_t FlatUnit::elements(bool trainable_only) const {
  std::int64_t total = 0;
  for (const Segment& segment : segments)
    if (segment.trainable || !trainable_only) total += segment.length;
  return total;
}

Layout make_layout(const Model& model, const ProcessGrid& grid,
                   const ZeroOptions& zero_optimization, const WireFormats& wire) {
  Layout layout;
  layout.grid = grid;
  std::vector<std::vector<int>> users(model.params.size());
  for (int u = 0; u < std::ssize(model.units); ++u) {
    for (const int param : model.units[u].params) users[param].push_back(u);
    for (const int param : model.borrowed(u)) users[param].push_back(u);
  }
  const std::vector<bool> persistent = persistent_params(model, zero_optimization);

  std::vector<std::vector<int>> small(std::max(std::size_t{1}, model.runs.size()));  // per run
  const auto add = [&](const std::string& name, Residence residence,
                       const std::vector<int>& params) {
    if (!params.empty())
      layout.flat_units.push_back(
          make_flat_unit(model, name, residence, params, grid.data_ranks(), wire));
  };
  for (const UnitDeclaration& unit : model.units) {
    std::vector<int> own;
    for (const int param : unit.params) {
      const bool in_stages = model.params[param].in_stages;
      if (persistent[param] && !in_stages)
        small[model.run_of(model.params[param].unit)].push_back(param);
      else if (users[param].size() > 1 || in_stages)
        add(model.params[param].name, Residence::held, {param});
      else
        own.push_back(param);
    }
    add(unit.name, unit.repeats ? Residence::held : Residence::in_turn, own);
  }
  // Gradients of a flat unit are reduced together, and a stage's runs interleave micro batches.
  for (std::size_t run = 0; run < small.size(); ++run)
    add(run == 0 ? "persistent" : "persistent of run " + std::to_string(run), Residence::persistent,
        small[run]);

  layout.place_of_param.resize(model.params.size());
  layout.needs_of_unit.resize(model.units.size());
  const std::vector<int> heights = heights_of(model);
  for (int f = 0; f < std::ssize(layout.flat_units); ++f) {
    FlatUnit& flat = layout.flat_units[f];
    for (int s = 0; s < std::ssize(flat.segments); ++s) layout.segment_ids.push_back({f, s});
    for (const SegmentId& id : layout.segments_of(f))
      for (const auto& [param, offset] : layout.segment(id).params) {
        layout.place_of_param[param] = {id, offset};
        for (const int user : users[param]) {
          std::vector<int>& needs = layout.needs_of_unit[user];
          if (needs.empty() || needs.back() != f) needs.push_back(f);
          flat.height = std::max(flat.height, heights[user]);
        }
      }
  }
  layout.hash = hash_of(layout.describe(model));
  return layout;
}

std::string Layout::describe(const Model& model) const {
  std::string lines = "ranks " + std::to_string(grid.data_ranks()) + "\n";
  if (grid.replicas() > 1) lines += "shard groups of " + std::to_string(grid.shard_ranks()) + "\n";
  for (const FlatUnit& flat : flat_units)
    for (const Segment& segment : flat.segments) {
      lines += flat.name + (segment.trainable ? " trainable" : " frozen") +
               (segment.split ? " split" : "") + (segment.encoded ? " encoded" : "") + " shard " +
               std::to_string(segment.slice) + "\n";
      for (const ParamPlace& place : segment.params)
        lines += "  " + model.params[place.param].name + " at " + std::to_string(place.offset) +
                 " elements " + std::to_string(model.params[place.param].elements) + "\n";
    }
  return lines;
}

std::vector<ParamRange> params_in(const Model& model, const Segment& segment, const Range& range) {
  std::vector<ParamRange> params;
  for (const auto& [param, offset] : segment.params) {
    const Range own = intersection(range, {offset, offset + model.params[param].elements});
    if (!own.empty()) params.push_back({param, own.begin - offset, own.begin, own.count()});
  }
  return params;
}

}  // namespace zero::detail
