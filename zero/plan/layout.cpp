#include "zero/plan/layout.h"

#include <algorithm>
#include <limits>

#include "zero/base/hash.h"

namespace zero::detail {

namespace {

std::int64_t aligned(std::int64_t elements) {
  return (elements + alignment_elements - 1) / alignment_elements * alignment_elements;
}

// Greedy in declaration order under the model-wide cap, as DeepSpeed does.
std::vector<bool> persistent_params(const Model& model, const ZeroOptions& options) {
  const std::int64_t threshold = options.param_persistence_threshold.value_or(0);
  std::int64_t room =
      options.model_persistence_threshold.value_or(std::numeric_limits<std::int64_t>::max());
  std::vector<bool> persistent(model.params.size(), false);
  for (std::size_t i = 0; i < model.params.size() && threshold > 0; ++i) {
    const std::int64_t elements = model.params[i].elements;
    if (elements > threshold || elements > room) continue;
    persistent[i] = true;
    room -= elements;
  }
  return persistent;
}

FlatUnit make_flat_unit(const Model& model, std::string name, Residence residence,
                        const std::vector<int>& params, int ranks) {
  FlatUnit unit{std::move(name), residence, {}, {}};
  // Trainable segments first, so that gradients mirror the front of the parameters.
  for (const bool trainable : {true, false})
    for (const int index : params) {
      const ParamOptions& options = model.params[index].options;
      if (options.trainable != trainable) continue;
      const auto same_kind = [&](const Segment& s) {
        return s.trainable == trainable && s.dtype == options.dtype && s.split == options.split;
      };
      auto segment = std::find_if(unit.segments.begin(), unit.segments.end(), same_kind);
      if (segment == unit.segments.end())
        segment = unit.segments.insert(unit.segments.end(),
                                       Segment{options.dtype, trainable, options.split, 0, 0, {}});
      segment->params.push_back({index, segment->length});
      segment->length += aligned(model.params[index].elements);
    }
  // One of empty parameters alone has padding, so that every flat unit has a place and can travel.
  for (Segment& segment : unit.segments) {
    segment.shard = std::max(alignment_elements, aligned((segment.length + ranks - 1) / ranks));
    segment.length = segment.shard * ranks;
  }
  return unit;
}

}  // namespace

std::int64_t FlatUnit::elements() const {
  std::int64_t total = 0;
  for (const Segment& segment : segments) total += segment.length;
  return total;
}

std::int64_t FlatUnit::trainable_elements() const {
  std::int64_t total = 0;
  for (const Segment& segment : segments) total += segment.trainable ? segment.length : 0;
  return total;
}

Layout make_layout(const Model& model, int ranks, const ZeroOptions& zero_optimization) {
  Layout layout;
  layout.ranks = ranks;
  std::vector<std::vector<int>> users(model.params.size());
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    for (const int param : model.units[u].params) users[param].push_back(static_cast<int>(u));
    for (const int param : model.borrowed(static_cast<int>(u)))
      users[param].push_back(static_cast<int>(u));
  }
  const std::vector<bool> persistent = persistent_params(model, zero_optimization);

  std::vector<int> small;
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    std::vector<int> own;
    for (const int param : model.units[u].params) {
      const auto p = static_cast<std::size_t>(param);
      if (persistent[p]) {
        small.push_back(param);
      } else if (users[p].size() > 1) {
        layout.flat_units.push_back(
            make_flat_unit(model, model.params[p].name, Residence::held, {param}, ranks));
      } else {
        own.push_back(param);
      }
    }
    if (!own.empty())
      layout.flat_units.push_back(
          make_flat_unit(model, model.units[u].name, Residence::in_turn, own, ranks));
  }
  if (!small.empty())
    layout.flat_units.push_back(
        make_flat_unit(model, "persistent", Residence::persistent, small, ranks));

  layout.place_of_param.resize(model.params.size());
  layout.needs_of_unit.resize(model.units.size());
  for (int f = 0; f < std::ssize(layout.flat_units); ++f) {
    FlatUnit& flat = layout.flat_units[f];
    for (const SegmentId id : layout.segments_of(f)) {
      layout.segment_ids.push_back(id);
      for (const auto& [param, offset] : layout.segment(id).params) {
        layout.place_of_param[param] = {id, offset};
        flat.users.insert(flat.users.end(), users[param].begin(), users[param].end());
      }
    }
    std::sort(flat.users.begin(), flat.users.end());
    flat.users.erase(std::unique(flat.users.begin(), flat.users.end()), flat.users.end());
    for (const int user : flat.users) layout.needs_of_unit[user].push_back(f);
  }
  layout.hash = hash_of(layout.describe(model));
  return layout;
}

std::string Layout::describe(const Model& model) const {
  std::string lines = "ranks " + std::to_string(ranks) + "\n";
  for (const FlatUnit& flat : flat_units)
    for (const Segment& segment : flat.segments) {
      lines += flat.name + (segment.trainable ? " trainable" : " frozen") +
               (segment.split ? " split" : "") + " shard " + std::to_string(segment.shard) + "\n";
      for (const ParamPlace& place : segment.params)
        lines += "  " + model.params[place.param].name + " at " + std::to_string(place.offset) +
                 " elements " + std::to_string(model.params[place.param].elements) + "\n";
    }
  return lines;
}

std::vector<Piece> pieces_between(const Model& model, const Segment& segment, std::int64_t begin,
                                  std::int64_t end) {
  std::vector<Piece> pieces;
  for (const ParamPlace& place : segment.params) {
    const std::int64_t first = std::max(begin, place.offset);
    const std::int64_t last = std::min(end, place.offset + model.params[place.param].elements);
    if (first < last) pieces.push_back({place.param, first - place.offset, first, last - first});
  }
  return pieces;
}

}  // namespace zero::detail
