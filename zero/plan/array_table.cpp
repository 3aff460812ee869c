#include "zero/plan/array_table.h"

#include <algorithm>
#include <utility>

#include "offload/block_file.h"
#include "zero/base/arena.h"
#include "zero/plan/engine_plan.h"

namespace zero::detail {

namespace {

MemoryCategory category_of(ArrayKind kind) {
  switch (kind) {
    case ArrayKind::parameter_shard:
      return MemoryCategory::parameters;
    case ArrayKind::master:
      return MemoryCategory::master_weights;
    case ArrayKind::state:
      return MemoryCategory::optimizer_state;
    default:
      return MemoryCategory::gradients;
  }
}

// Adds the rows of segments and chunks to a table.
class TableMaker {
 public:
  TableMaker(const EnginePlan& plan, ArrayTable& table)
      : plan_(plan), policy_(plan.policy), offload_(plan.inputs.offload), table_(table) {
    ArrayPool& whole = open(Pool::parameters, MemoryCategory::parameters);
    whole.slots = plan.parameter_memory.slots;
    if (policy_.parameters_sharded) whole.category = MemoryCategory::parameter_slots;
    ArrayPool& gradients = open(Pool::gradients, MemoryCategory::gradient_slots);
    gradients.slots = plan.gradient_memory.slots;
    if (policy_.gradients_whole) gradients.category = MemoryCategory::gradients;
    open(Pool::shard_buffers, MemoryCategory::offload_buffers).slots = offload_.shard_slots;
    open(Pool::shards, MemoryCategory::parameters);
    open(Pool::second_copies, MemoryCategory::parameters);
    open(Pool::gradient_sums, MemoryCategory::gradients);
    open(Pool::optimizer, MemoryCategory::optimizer_state);
    open(Pool::kept, MemoryCategory::activations).slots = plan.inputs.model->has_outputs() ? 2 : 0;
    open(Pool::waiting_sums, MemoryCategory::communication).slots = 1;
  }

  void add_segment(const SegmentId& id) {
    id_ = id;
    segment_ = &plan_.layout.segment(id);
    types_ = policy_.types(*segment_);
    whole_ = {0, segment_->length};
    shard_ = policy_.shard(*segment_);
    table_.updated[id] = {*segment_, policy_.updated(*segment_), plan_.updates};
    add_parameters();
    if (!segment_->trainable) return;
    add_gradient_sums();
    add_gradients();
    add_optimizer();
  }

  void add_chunk(int number);

  void add_unit(int number) {
    const Model& model = *plan_.inputs.model;
    std::vector<ArrayRow>& rows = table_.pools[Pool::kept].rows;
    table_.first_kept.push_back(static_cast<int>(rows.size()));
    const std::vector<KeptDeclaration>& all = model.units[number].kept;
    const auto uses_of = [&](const KeptDeclaration& kept) {
      return plan_.inputs.uses_of(number, kept);
    };
    const auto most = std::ranges::max_element(all, {}, uses_of);
    for (int use = 0; most != all.end() && use < uses_of(*most); ++use)
      for (const KeptDeclaration& kept : all) {
        const bool exists = use < uses_of(kept);
        const std::int64_t elements = exists ? kept.elements * plan_.batch.micro : 0;
        ArrayRow& row = rows.emplace_back(kept_row(kept, elements));
        row.slot = exists ? kept.shared : -1;
        row.id.number = static_cast<int>(&kept - all.data());
        row.unit = number;
        row.uses = uses_of(kept);
      }
  }

 private:
  ArrayPool& open(Pool pool, MemoryCategory category) {
    table_.pools[pool].category = category;
    return table_.pools[pool];
  }

  ArrayRow kept_row(const KeptDeclaration& kept, std::int64_t elements) const {
    return {.id = {{}, ArrayKind::kept},
            .range = {0, elements},
            .count = elements,
            .encoding = {kept.dtype.value_or(policy_.precision.compute)},
            .category = MemoryCategory::activations};
  }

  // A slot has a unit's arrays one after another.
  ArrayRow& add(Pool pool, ArrayKind kind, const Range& range, int slot = -1) {
    auto& [category, slots, rows] = table_.pools[pool];
    ArrayRow row{.id = {id_, kind},
                 .range = range,
                 .count = range.count(),
                 .encoding = {types_.of(kind)},
                 .category = category,
                 .slot = slot};
    if (slot >= 0 && !rows.empty() && rows.back().id.flat_unit == id_.flat_unit) {
      const std::int64_t bytes = rows.back().within ? 0 : rows.back().bytes();
      // O_DIRECT requires whole pages.
      row.offset =
          rows.back().offset + (pool == Pool::shard_buffers ? offload::aligned(bytes) : bytes);
    }
    return rows.emplace_back(row);
  }

  // Parameters gathered in a wire format differ from the shards, so these have separate memory: the
  // next update may have to read them, and checkpoints contain them.
  void add_parameters() {
    const int buffer = offload_.shard_slot(id_.flat_unit);
    const bool within = !policy_.parameters_sharded && !segment_->encoded && buffer < 0;
    ArrayRow& shard = add(buffer >= 0 ? Pool::shard_buffers : Pool::shards,
                          ArrayKind::parameter_shard, shard_, buffer);
    if (within) shard.within = ArrayKind::parameter;
    // The file keeps a trainable shard in chunks.
    const bool in_chunks = segment_->trainable && offload_.fetches(id_.flat_unit);
    if (buffer >= 0 && !in_chunks && !shard_.empty())
      table_.outside_shards.push_back(outside_shard());
    if (plan_.inputs.has_second_copy(id_.flat_unit))
      add(Pool::second_copies, ArrayKind::second_copy, policy_.second_copy(*segment_));
    if (const int slot = plan_.parameter_memory.slot_of[id_.flat_unit]; slot >= 0)
      add(Pool::parameters, ArrayKind::parameter, whole_, slot);
  }

  ArrayRow outside_shard() const {
    return {.id = {id_, ArrayKind::parameter_shard},
            .range = shard_,
            .count = shard_.count(),
            .encoding = {types_.of(ArrayKind::parameter_shard)},
            .category = MemoryCategory::parameters,
            .home = offload_.fetches(id_.flat_unit) ? Tier::file : Tier::host};
  }

  void add_gradient_sums() {
    const bool apart = policy_.accumulator == Accumulator::shard;
    ArrayRow& own = add(Pool::gradient_sums, ArrayKind::gradient_shard, shard_);
    if (!apart) own.within = plan_.routes.whole_sum(id_).kind;
    if (apart && offload_.gradients)
      own.count = offload_.resident_of(id_, policy_.updated(*segment_));
    if (const std::int64_t sums = plan_.routes.group_sums_elements(id_); sums > 0)
      add(Pool::gradient_sums, ArrayKind::group_sums, {0, sums});
    if (policy_.keeps_open_group()) add(Pool::gradient_sums, ArrayKind::open_group, shard_);
    if (policy_.keeps_whole_sum()) add(Pool::gradient_sums, ArrayKind::accumulated, whole_);
    // All segments of a unit are summed in the group before any is summed over the groups.
    add(Pool::waiting_sums, ArrayKind::group_sum, {0, plan_.routes.waiting_elements(id_)}, 0);
  }

  // The memory that backward writes, and the landing of shards that move to another home.
  void add_gradients() {
    const int slot = plan_.gradient_memory.slot_of[id_.flat_unit];
    if (slot < 0) return;
    add(Pool::gradients, ArrayKind::gradient, whole_, slot);
    if (!offload_.gradients) return;
    ArrayRow& landing = add(Pool::gradients, ArrayKind::landing, shard_, slot);
    if (types_.summand == types_.wire) landing.within = ArrayKind::gradient;
  }

  void add_optimizer() {
    const Range updated = policy_.updated(*segment_);
    const std::int64_t resident = offload_.resident_of(id_, updated);
    ArrayRow& master = add(Pool::optimizer, ArrayKind::master, updated);
    master.category = MemoryCategory::master_weights;
    master.count = resident;
    if (!types_.has_master())
      master.within =
          policy_.optimizer_sharded() ? ArrayKind::parameter_shard : ArrayKind::parameter;
    const std::vector<std::int64_t>& counts = table_.updated[id_].state_counts;
    for (int k = 0; k < std::ssize(counts); ++k) {
      ArrayRow& state = add(Pool::optimizer, ArrayKind::state, updated);
      state.id.number = k;
      state.count = std::min(counts[k], resident);
    }
  }

  const EnginePlan& plan_;
  const StatePolicy& policy_;
  const OffloadPlan& offload_;
  ArrayTable& table_;
  // The segment whose rows are added.
  SegmentId id_;
  const Segment* segment_ = nullptr;
  SegmentTypes types_;
  Range whole_, shard_;
};

void TableMaker::add_chunk(int number) {
  const Chunk& chunk = plan_.inputs.chunks[number];
  const Segment& segment = plan_.layout.segment(chunk);
  const SegmentTypes types = policy_.types(segment);
  std::vector<ArrayRow>& rows = table_.of_chunk.emplace_back();
  std::int64_t end = 0;
  const auto add = [&](ArrayKind kind, Tier home, bool in_slot, int state = 0) {
    ArrayRow& row = rows.emplace_back(ArrayRow{.id = {chunk, kind, state},
                                               .range = chunk.range_in(policy_.updated(segment)),
                                               .count = chunk.count,
                                               .encoding = {types.of(kind)},
                                               .category = category_of(kind),
                                               .home = home,
                                               .chunk = number});
    if (!in_slot) return;
    row.slot = chunk.slot;
    row.offset = std::exchange(end, end + slot_bytes_of(offload_, row));
  };
  const Tier home = chunk.state_in_file               ? Tier::file
                    : chunk.on_host || chunk.streamed ? Tier::host
                                                      : Tier::memory;
  if (offload_.recalls(chunk))
    add(ArrayKind::gradient_shard, Tier::file, true);
  else if (chunk.on_host)
    add(ArrayKind::gradient_shard, Tier::host, false);
  if (offload_.fetches(chunk.flat_unit))
    add(ArrayKind::parameter_shard, Tier::file, true);
  else if (offload_.shard_slot(chunk.flat_unit) >= 0 && home != Tier::memory)
    add(ArrayKind::parameter_shard, Tier::host, chunk.streamed);
  else if (offload_.uploads(chunk))
    // A parameter without master weights counts as optimizer state, so the file holds a copy.
    add(ArrayKind::parameter_shard,
        chunk.state_in_file && !types.has_master() ? Tier::file : Tier::memory, true);
  if (home == Tier::memory) return;
  // State kept in the file, or updated by a GPU, has a place in the slot.
  const bool in_slot = !chunk.on_host || home == Tier::file;
  if (types.has_master())
    add(ArrayKind::master, home, in_slot);
  else if (offload_.uploads(chunk) && home == Tier::host)
    add(ArrayKind::master, home, false);
  for (int k = 0; k < std::ssize(plan_.updates.state_names()); ++k)
    add(ArrayKind::state, home, in_slot, k);
}

}  // namespace

std::int64_t slot_bytes_of(const OffloadPlan& offload, const ArrayRow& row) {
  return offload.in_file ? offload::aligned(row.bytes()) : Arena::rounded(row.bytes());
}

ArrayTable::ArrayTable(const EnginePlan& plan) : updated(plan.layout) {
  TableMaker maker(plan, *this);
  for (const SegmentId& id : plan.layout.segments()) maker.add_segment(id);
  for (int c = 0; c < std::ssize(plan.inputs.chunks); ++c) maker.add_chunk(c);
  for (int u = 0; u < std::ssize(plan.inputs.model->units); ++u) maker.add_unit(u);
}

}  // namespace zero::detail
