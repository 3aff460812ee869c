#include "zero/plan/chunks.h"

#include <algorithm>
#include <cmath>

namespace zero::detail {

namespace {

class ChunkMaker {
 public:
  ChunkMaker(const Layout& layout, const StatePolicy& policy, const Config& config)
      : layout_(layout), policy_(policy), config_(config) {}

  Chunking run() {
    if (policy_.parameters_in_file || policy_.parameters_on_host) place_parameters();
    for (std::size_t f = 0; f < layout_.flat_units.size(); ++f) cut(static_cast<int>(f));
    if (policy_.optimizer_in_file || policy_.optimizer_on_host) place_states();
    assign_slots();
    return std::move(result_);
  }

 private:
  const FlatUnit& flat_of(const Chunk& chunk) const { return layout_.flat_units[chunk.flat_unit]; }
  const Segment& segment_of(const Chunk& chunk) const {
    return flat_of(chunk).segments[chunk.segment];
  }
  DType dtype_of(const Segment& segment) const {
    return segment.dtype.value_or(policy_.precision.compute);
  }

  // Before a file the first units stay in memory, up to max_in_cpu elements of this rank; in that
  // of the host, beside a GPU.
  void place_parameters() {
    const OffloadParamOptions& options = config_.zero_optimization.offload_param;
    OffloadPlan& offload = result_.offload;
    std::int64_t in_memory = 0, largest = 1;
    int count = 0;
    for (const FlatUnit& flat : layout_.flat_units) {
      const std::int64_t shard = flat.elements() / layout_.ranks;
      const bool fits = in_memory + shard <= options.max_in_cpu;
      const bool in_file = policy_.parameters_in_file && shard > 0 && !fits;
      const bool leaves = in_file || (policy_.parameters_on_host && shard > 0);
      if (!in_file) in_memory += shard;
      if (leaves) largest = std::max(largest, shard);
      offload.shard_slot_of.push_back(leaves ? count++ : -1);
      offload.shard_in_file.push_back(in_file);
      offload.in_file = offload.in_file || in_file;
      offload.on_host = offload.on_host || (leaves && policy_.parameters_on_host);
    }
    const std::int64_t buffers = std::max<std::int64_t>(1, options.buffer_count);
    const std::int64_t fitting = buffers * options.buffer_size / largest;
    offload.shard_slots = static_cast<int>(
        std::min<std::int64_t>(count, std::clamp<std::int64_t>(fitting, 1, buffers)));
    for (int& slot : offload.shard_slot_of)
      if (slot >= 0) slot %= offload.shard_slots;
  }

  // What of an element passes through a slot.
  std::int64_t bytes_per_element(int flat_unit, const Segment& segment) const {
    const DType dtype = dtype_of(segment);
    const bool on_host = policy_.optimizer_on_host;
    const bool parameter = on_host || result_.offload.shard_slot(flat_unit) >= 0;
    std::int64_t bytes = parameter ? size_of(dtype) : 0;
    if (!policy_.optimizer_in_file && !on_host) return bytes;
    const Precision& precision = policy_.precision;
    bytes += std::ssize(policy_.optimizer_states) * size_of(precision.state_of(dtype));
    if (const DType master = precision.master_of(dtype); master != dtype) bytes += size_of(master);
    if (policy_.gradients_in_file || on_host)
      bytes += size_of(segment.dtype.value_or(policy_.precision.accumulation));
    return bytes;
  }

  void cut(int flat_unit) {
    std::vector<Chunk>& chunks = result_.chunks;
    const std::size_t before = chunks.size();
    const FlatUnit& flat = layout_.flat_units[flat_unit];
    for (std::size_t s = 0; s < flat.segments.size(); ++s) {
      const Segment& segment = flat.segments[s];
      if (!segment.trainable) continue;
      const std::int64_t count = policy_.optimizer_sharded ? segment.shard : segment.length;
      const std::int64_t bytes = bytes_per_element(flat_unit, segment);
      std::int64_t piece = count;
      if (bytes > 0)
        piece = std::max(chunk_alignment_elements, config_.zero_core.offload_chunk_bytes / bytes /
                                                       chunk_alignment_elements *
                                                       chunk_alignment_elements);
      for (std::int64_t begin = 0; begin < count; begin += piece)
        chunks.push_back({flat_unit, static_cast<int>(s), begin, std::min(piece, count - begin)});
    }
    if (chunks.size() > before) chunks.back().last_of_unit = true;
  }

  // The first chunks stay where the rank computes: as many as `ratio` leaves. The next do not go to
  // a file, as many as fit the cache.
  void place_states() {
    OffloadPlan& offload = result_.offload;
    for (const FlatUnit& flat : layout_.flat_units)
      offload.resident.emplace_back(flat.segments.size());
    const auto total = static_cast<double>(result_.chunks.size());
    const double ratio = config_.zero_optimization.offload_optimizer.ratio;
    auto stay = static_cast<std::int64_t>(std::floor((1 - ratio) * total));
    std::int64_t cache = policy_.optimizer_in_file ? config_.zero_core.offload_cache_bytes : 0;
    for (Chunk& chunk : result_.chunks) {
      if (--stay < 0) cache -= chunk.count * bytes_per_element(chunk.flat_unit, segment_of(chunk));
      const bool cached = stay < 0 && cache >= 0;
      chunk.on_host = stay < 0 && policy_.optimizer_on_host;
      chunk.state_in_file = stay < 0 && !cached && policy_.optimizer_in_file;
      const bool stays = !chunk.on_host && !chunk.state_in_file;
      offload.on_host = offload.on_host || chunk.on_host;
      offload.in_file = offload.in_file || chunk.state_in_file;
      offload.gradients = offload.gradients || (chunk.state_in_file && policy_.gradients_in_file) ||
                          (chunk.on_host && policy_.gradients_on_host);
      if (stays) offload.resident[chunk.flat_unit][chunk.segment] += chunk.count;
    }
  }

  bool needs_slot(const Chunk& chunk) const {
    const OffloadPlan& offload = result_.offload;
    return offload.passes_file(chunk) || offload.uploads(chunk);
  }

  // Slots in turn: read, step, write.
  void assign_slots() {
    const OffloadOptimizerOptions& options = config_.zero_optimization.offload_optimizer;
    OffloadPlan& offload = result_.offload;
    int count = 0;
    for (Chunk& chunk : result_.chunks)
      if (needs_slot(chunk)) chunk.slot = count++;
    offload.state_slots = static_cast<int>(
        std::min<std::int64_t>(count, std::max<std::int64_t>(1, options.buffer_count - 1)));
    offload.pipeline_read = options.pipeline_read.value_or(true);
    offload.pipeline_write = options.pipeline_write.value_or(true);
    for (Chunk& chunk : result_.chunks) {
      if (chunk.slot < 0) continue;
      chunk.ahead =
          offload.passes_file(chunk) && offload.pipeline_read && chunk.slot < offload.state_slots;
      chunk.slot %= offload.state_slots;
    }
  }

  const Layout& layout_;
  const StatePolicy& policy_;
  const Config& config_;
  Chunking result_;
};

}  // namespace

Chunking make_chunking(const Layout& layout, const StatePolicy& policy, const Config& config) {
  return ChunkMaker(layout, policy, config).run();
}

}  // namespace zero::detail
