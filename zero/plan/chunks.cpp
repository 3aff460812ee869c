#include "zero/plan/chunks.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace zero::detail {

namespace {

// The planner's rates of a rank in a node with eight H100s.
constexpr double default_rate = 50e9;

// Who updates each chunk of a GPU rank's state in host memory: the host or, through the bus, the
// GPU, whichever will be done first.
class StepSplit {
 public:
  struct Seconds {
    double host, upload, stream;
  };
  bool is_streamed(const Seconds& chunk) {
    const bool streamed = bus_ + chunk.stream < host_ + chunk.host;
    bus_ += streamed ? chunk.stream : chunk.upload;
    if (!streamed) host_ += chunk.host;
    return streamed;
  }

 private:
  double host_ = 0, bus_ = 0;  // seconds of work so far
};

class ChunkMaker {
 public:
  ChunkMaker(const Layout& layout, const StatePolicy& policy, std::int64_t states,
             const Config& config, const std::vector<int>& needed_first)
      : layout_(layout),
        policy_(policy),
        states_(states),
        config_(config),
        needed_first_(needed_first) {}

  Chunking run() {
    if (policy_.homes.parameter != Tier::memory) place_parameters();
    for (int f = 0; f < std::ssize(layout_.flat_units); ++f) cut(f);
    if (policy_.homes.optimizer != Tier::memory) place_states();
    assign_slots();
    return {std::move(chunks_), std::move(offload_)};
  }

 private:
  bool updates_on_host() const {
    return policy_.on_gpu && policy_.homes.optimizer != Tier::memory &&
           (!policy_.homes.steps_on_device || policy_.homes.splits_steps);
  }

  // A CPU rank keeps the first units in memory, up to max_in_cpu elements of shards, and all
  // further units in the file. On GPU ranks this memory is the host's, and all units leave the GPU.
  void place_parameters() {
    const OffloadParamOptions& options = config_.zero_optimization.offload_param;
    std::int64_t in_memory = 0, largest = 1;
    int count = 0;
    for (const FlatUnit& flat : layout_.flat_units) {
      const std::int64_t shard = flat.elements() / layout_.grid.shard_ranks();
      const bool fits = in_memory + shard <= options.max_in_cpu;
      const bool in_file = policy_.homes.parameter == Tier::file && shard > 0 && !fits;
      const bool leaves = in_file || (policy_.on_gpu && shard > 0);
      if (!in_file) in_memory += shard;
      if (leaves) largest = std::max(largest, shard);
      offload_.shard_slot_of.push_back(leaves ? count++ : -1);
      offload_.shard_in_file.push_back(in_file);
      offload_.in_file |= in_file;
      offload_.parameters_on_host |= leaves && policy_.on_gpu;
    }
    const std::int64_t buffers = std::max<std::int64_t>(1, options.buffer_count);
    const std::int64_t fitting = buffers * options.buffer_size / largest;
    offload_.shard_slots = static_cast<int>(
        std::min<std::int64_t>(count, std::clamp<std::int64_t>(fitting, 1, buffers)));
    for (int& slot : offload_.shard_slot_of)
      if (slot >= 0) slot %= offload_.shard_slots;
  }

  // Bytes per element that pass through a slot.
  std::int64_t bytes_per_element(const SegmentId& id) const {
    const Precision& precision = policy_.precision;
    const std::optional<DType> own = layout_.segment(id).dtype;
    const DType dtype = own.value_or(precision.compute);
    const bool on_host = updates_on_host();
    const bool parameter = on_host || offload_.shard_slot(id.flat_unit) >= 0;
    std::int64_t bytes = parameter ? size_of(dtype) : 0;
    if (policy_.homes.optimizer == Tier::memory) return bytes;
    bytes += state_bytes(id);
    if (policy_.homes.gradient == Tier::file || on_host)
      bytes += size_of(own.value_or(precision.accumulation));
    return bytes;
  }

  // Bytes per element of states and master weights.
  std::int64_t state_bytes(const SegmentId& id) const {
    const Precision& precision = policy_.precision;
    const DType dtype = layout_.segment(id).dtype.value_or(precision.compute);
    const DType master = precision.master_of(dtype);
    return states_ * size_of(precision.state_of(dtype)) + (master != dtype ? size_of(master) : 0);
  }

  void cut(int flat_unit) {
    const auto before = chunks_.size();
    for (const SegmentId& id : layout_.trainable_of(flat_unit)) {
      const std::int64_t count = policy_.updated(layout_.segment(id)).count();
      const std::int64_t bytes = bytes_per_element(id);
      std::int64_t most = count;
      if (bytes > 0)
        most = std::max(chunk_alignment_elements, config_.zero_core.offload_chunk_bytes / bytes /
                                                      chunk_alignment_elements *
                                                      chunk_alignment_elements);
      for (std::int64_t begin = 0; begin < count; begin += most)
        chunks_.push_back({id, begin, std::min(most, count - begin)});
    }
    if (chunks_.size() > before) chunks_.back().last_of_unit = true;
  }

  StepSplit::Seconds seconds_of_step(const Chunk& chunk) const {
    const SegmentTypes types = policy_.types(layout_.segment(chunk));
    const CoreOptions& core = config_.zero_core;
    const double host = core.offload_host_rate.value_or(default_rate);
    const double bus = core.offload_bus_rate.value_or(default_rate);
    const auto count = static_cast<double>(chunk.count);
    const auto state = static_cast<double>(state_bytes(chunk));
    const auto parameter = static_cast<double>(size_of(types.dtype));
    const bool moves_parameter = offload_.shard_slot(chunk.flat_unit) >= 0;
    return {count * (2 * state + parameter + static_cast<double>(size_of(types.sum))) / host,
            moves_parameter ? 0 : count * parameter / bus,
            count * (state + (moves_parameter ? parameter : 0)) / bus};
  }

  bool is_needed_first(const Chunk& chunk) const {
    return std::ranges::find(needed_first_, chunk.flat_unit) != needed_first_.end();
  }

  // Bytes of state that may stay in GPU memory because the next forward pass needs its parameters
  // first, and backward computes its gradient last, so that nothing hides a copy. None if all state
  // is of the first unit, since then nothing would be offloaded.
  std::int64_t keepable_bytes() const {
    const bool keeps = policy_.on_gpu && policy_.homes.parameter == Tier::memory &&
                       !std::ranges::all_of(
                           chunks_, [this](const Chunk& chunk) { return is_needed_first(chunk); });
    return keeps ? config_.zero_core.offload_keep_bytes : 0;
  }

  // A segment's state stays from its first element on.
  bool is_kept(const Chunk& chunk, std::int64_t keepable) {
    const std::int64_t bytes = chunk.count * state_bytes(chunk);
    if (keepable == 0 || offload_.kept_bytes + bytes > keepable || !is_needed_first(chunk) ||
        offload_.resident[chunk] != chunk.begin)
      return false;
    offload_.kept_bytes += bytes;
    return true;
  }

  // offload_optimizer.ratio keeps the first chunks on the device, and offload_cache_bytes keeps the
  // next chunks out of the file.
  void place_states() {
    offload_.resident = BySegment<std::int64_t>(layout_);
    const auto total = static_cast<double>(chunks_.size());
    const double ratio = config_.zero_optimization.offload_optimizer.ratio;
    auto stay = static_cast<std::int64_t>(std::floor((1 - ratio) * total));
    const bool to_file = policy_.homes.optimizer == Tier::file;
    std::int64_t cache = to_file ? config_.zero_core.offload_cache_bytes : 0;
    const std::int64_t keepable = keepable_bytes();
    for (Chunk& chunk : chunks_) {
      const bool leaves = --stay < 0 && !is_kept(chunk, keepable);
      if (leaves) cache -= chunk.count * bytes_per_element(chunk);
      chunk.streamed = leaves && policy_.homes.steps_on_device &&
                       (!policy_.homes.splits_steps || split_.is_streamed(seconds_of_step(chunk)));
      chunk.on_host = leaves && updates_on_host() && !chunk.streamed;
      chunk.state_in_file = leaves && cache < 0 && to_file;
      const bool stays = !chunk.on_host && !chunk.streamed && !chunk.state_in_file;
      offload_.updates_on_host |= chunk.on_host;
      offload_.streams |= chunk.streamed;
      offload_.in_file |= chunk.state_in_file;
      offload_.gradients |= !stays && policy_.homes.gradient != Tier::memory;
      if (stays) offload_.resident[chunk] += chunk.count;
    }
  }

  // Chunks use the slots in turn: each is read, updated and written.
  void assign_slots() {
    const OffloadOptimizerOptions& options = config_.zero_optimization.offload_optimizer;
    int on_host = 0, on_gpu = 0;
    for (Chunk& chunk : chunks_)
      if (offload_.passes_slot(chunk) || offload_.uploads(chunk))
        chunk.slot = chunk.streamed ? on_gpu++ : on_host++;
    const auto slots = [&](int count) {
      return static_cast<int>(
          std::min<std::int64_t>(count, std::max<std::int64_t>(1, options.buffer_count - 1)));
    };
    offload_.host_slots = slots(on_host);
    offload_.state_slots = offload_.host_slots + slots(on_gpu);
    offload_.pipeline_read = options.pipeline_read.value_or(true);
    offload_.pipeline_write = options.pipeline_write.value_or(true);
    for (Chunk& chunk : chunks_) {
      if (chunk.slot < 0) continue;
      const int count = slots(chunk.streamed ? on_gpu : on_host);
      chunk.ahead = offload_.passes_slot(chunk) && offload_.pipeline_read && chunk.slot < count;
      chunk.slot = (chunk.streamed ? offload_.host_slots : 0) + chunk.slot % count;
    }
  }

  const Layout& layout_;
  const StatePolicy& policy_;
  const std::int64_t states_;  // of an element
  const Config& config_;
  const std::vector<int>& needed_first_;  // flat units
  StepSplit split_;
  std::vector<Chunk> chunks_;
  OffloadPlan offload_;
};

}  // namespace

Chunking make_chunking(const Layout& layout, const StatePolicy& policy, const UpdateGroups& updates,
                       const Config& config, const std::vector<int>& needed_first) {
  return ChunkMaker(layout, policy, std::ssize(updates.state_names()), config, needed_first).run();
}

}  // namespace zero::detail
