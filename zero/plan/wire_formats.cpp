#include "zero/plan/wire_formats.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>

#include "zero/plan/placement.h"

namespace zero::detail {

namespace {

using comm::wire::Codec;
using comm::wire::Format;

Format format_of(const std::string& key, const std::string& name) {
  const auto& names = comm::wire::format_names;
  const auto found = std::ranges::find(names, name);
  if (found != std::end(names)) return static_cast<Format>(found - std::begin(names));
  std::string allowed;
  for (const char* format : names) allowed += (allowed.empty() ? "" : ", ") + std::string(format);
  throw ConfigError(key + " is \"" + name + "\"; allowed: " + allowed);
}

Codec codec_of(Format format, std::int64_t block) {
  try {
    return Codec(format, block);
  } catch (const UsageError& error) {
    throw ConfigError("zero_core.wire.block_size: " + std::string(error.what()));
  }
}

// Whether another unit has parameters of the same names and shapes, as in transformer blocks.
bool unit_repeats(const Model& model, int unit) {
  const auto like = [&](int a, int b) {
    return model.params[a].short_name == model.params[b].short_name &&
           model.params[a].shape == model.params[b].shape;
  };
  const UnitDeclaration& own = model.units[unit];
  return own.repeats || std::ranges::any_of(model.units, [&](const UnitDeclaration& other) {
           return &other != &own && std::ranges::equal(other.params, own.params, like);
         });
}

}  // namespace

bool WireFormats::encodes_gather(const Model& model, int param, bool persistent) const {
  const ParamDeclaration& declaration = model.params[param];
  const bool trainable = declaration.options.trainable;
  if (trainable && gathers_trainable) return true;
  return (trainable ? gathers_matrices : gathers_frozen_matrices) && !persistent &&
         !declaration.is_bytes() && declaration.shape.size() > 1 &&
         unit_repeats(model, declaration.unit);
}

std::int64_t WireFormats::alignment() const {
  std::int64_t alignment = alignment_elements;
  for (const Codec& codec : {gather, reduce, gather_inside, reduce_inside})
    if (codec.format != Format::none && codec.format != Format::bf16)
      alignment = std::lcm(alignment, codec.block);
  return alignment;
}

namespace {

void choose_gather(const Config& config, const Strategy& strategy, WireFormats& formats) {
  const WireOptions& options = config.zero_core.wire;
  const ZeroOptions& zero_optimization = config.zero_optimization;
  const std::string key = "zero_core.wire.gather";
  const Format format = format_of(key, options.gather);
  const bool sharded = strategy.parameter == Placement::shard;
  formats.gathers_trainable = format != Format::none;
  formats.gathers_matrices = sharded && zero_optimization.quantized_weights;
  formats.gathers_frozen_matrices = sharded && zero_optimization.quantized_nontrainable_weights;
  const bool int8 = formats.gathers_matrices || formats.gathers_frozen_matrices;
  if (formats.gathers_trainable && strategy.optimizer == Placement::replicate)
    throw ConfigError(key + " is \"" + options.gather + "\", and " + strategy.strategy +
                      " gathers no parameters: set zero_optimization.stage to 1, 2 or 3, or leave "
                      "the key out");
  if (formats.gathers_trainable && int8 && format != Format::int8)
    throw ConfigError(key + " is \"" + options.gather +
                      "\", and zero_optimization.zero_quantized_weights or "
                      "zero_quantized_nontrainable_weights asks for int8: leave one of them out");
  formats.gather = codec_of(int8 ? Format::int8 : format, options.block_size);
}

bool asks_for_qgz(const Config& config, const Strategy& strategy) {
  return config.zero_optimization.quantized_gradients && strategy.parameter == Placement::shard;
}

void choose_reduce(const Config& config, const Strategy& strategy, WireFormats& formats) {
  const WireOptions& options = config.zero_core.wire;
  const std::string key = "zero_core.wire.reduce";
  const Format format = format_of(key, options.reduce);
  formats.reduce = codec_of(format, options.block_size);
  if (!asks_for_qgz(config, strategy)) return;
  if (format != Format::none)
    throw ConfigError(key + " is \"" + options.reduce +
                      "\", and zero_optimization.zero_quantized_gradients chooses int4 and two "
                      "hops: leave one of them out");
  formats.reduce = codec_of(Format::int4, options.block_size);
}

void choose_hops(const Config& config, const ProcessGrid& grid, int node_ranks,
                 WireFormats& formats) {
  const WireOptions& options = config.zero_core.wire;
  const int node = reduce_group_of(config.zero_core, node_ranks);
  const bool cut = node > 1 && node < grid.shard_ranks() && grid.shard_ranks() % node == 0;
  // Chooses the format inside a node for arrays that are sent as `between` from node to node.
  // Returns whether an exchange over a shard group takes two hops because the formats differ, which
  // needs several ranks on each of several nodes. Inside one node, or with one rank per node, there
  // is only one format, stored in `inside`.
  const auto differ = [&](const std::string& key, const std::string& given, const Codec& between,
                          Codec& inside) {
    inside = given.empty() ? between : codec_of(format_of(key, given), options.block_size);
    if (between.format == Format::none && inside.format != Format::none)
      throw ConfigError(key + " is \"" + given +
                        "\", and between nodes nothing is encoded: choose a format for that too, "
                        "or leave the key out");
    if (inside == between) return false;
    if (node == 1) inside = between;
    if (node == 1 || (node > 0 && node % grid.shard_ranks() == 0)) return false;
    if (!cut)
      throw ConfigError(key + " differs from the format between nodes, and " +
                        std::to_string(grid.shard_ranks()) +
                        " ranks cannot be cut into equal nodes of neighbouring ranks: set "
                        "zero_core.reduce_group_size to a divisor, or leave the key out");
    return true;
  };
  const bool gathers = differ("zero_core.wire.gather_inside", options.gather_inside, formats.gather,
                              formats.gather_inside);
  if (gathers) formats.gather_hop = node;
  const bool reduces = differ("zero_core.wire.reduce_inside", options.reduce_inside, formats.reduce,
                              formats.reduce_inside);
  if (reduces) formats.reduce_hop = node;
}

// qgZ takes two hops if groups divide the ranks. Shard groups already have two hops: inside a
// group, and over the groups.
void choose_hops_of_qgz(const Config& config, const Strategy& strategy, const ProcessGrid& grid,
                        int node_ranks, WireFormats& formats) {
  if (!asks_for_qgz(config, strategy) || grid.replicas() > 1 || formats.reduce_hop > 0) return;
  const int group = inner_group_of(config.zero_core, grid, node_ranks, false);
  if (group > 1 && group < grid.data_ranks() && grid.data_ranks() % group == 0)
    formats.reduce_hop = group;
}

}  // namespace

WireFormats wire_formats_for(const Config& config, const Strategy& strategy,
                             const ProcessGrid& grid, int node_ranks) {
  WireFormats formats;
  choose_gather(config, strategy, formats);
  choose_reduce(config, strategy, formats);
  choose_hops(config, grid, node_ranks, formats);
  choose_hops_of_qgz(config, strategy, grid, node_ranks, formats);
  if (grid.data_ranks() == 1) return {};
  formats.measures_errors = formats.encodes() && config.zero_core.wire.max_error;
  return formats;
}

}  // namespace zero::detail
