#include "zero/checkpointing/checkpointing.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <utility>

#include "optim/gradient_norm.h"
#include "zero/checkpointing/scaler_record.h"
#include "zero/state/array_exchange.h"

namespace zero {

namespace detail {

namespace {

using checkpoint::ElementRange;
using checkpoint::Manifest;

std::string cpu_type() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos)
      return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace

void print_notice(const std::string& notice) {
  std::fprintf(stderr, "zero: checkpoint: %s\n", notice.c_str());
}

std::map<std::string, std::string> Checkpointing::equality_terms() {
  const Batch& batch = train_.plan.batch;
  Device& device = train_.runtime.device();
  const bool ordered = device.is_host() || train_.config.zero_core.deterministic;
  return {{"ranks", std::to_string(train_.rank_count())},
          {"reduce_group_size", std::to_string(train_.ranks.terms().reduce_group)},
          {"gradient_sync", train_.plan.sync_each && batch.accumulation > 1 ? "each" : "last"},
          {"micro_batch", std::to_string(batch.micro)},
          {"accumulation", std::to_string(batch.accumulation)},
          {"threads", std::to_string(train_.runtime.pool().threads())},
          {"cpu", cpu_type()},
          {"device", device.kind()},
          {"sums", ordered ? "in rank order" : "of NCCL"},
          {"compute_dtype", name_of(train_.policy().precision.compute)},
          {"seed", std::to_string(train_.config.seed)},
          {"communication_data_type", name_of(train_.policy().precision.wire)},
          {"grad_accum_dtype", name_of(train_.policy().precision.accumulation)},
          {"master_dtype", name_of(train_.policy().precision.master)},
          {"state_dtype", name_of(train_.policy().precision.state)},
          {"layout_hash", checkpoint::Digest{0, train_.plan.layout.hash}.hex().substr(16)}};
}

Manifest Checkpointing::describe_state(const SaveOptions& options) {
  Manifest m;
  m.step = train_.step;
  m.tag = options.tag.empty() ? "step-" + std::to_string(m.step) : options.tag;
  m.applied_steps = train_.applied_steps;
  m.skipped_in_a_row = train_.skipped_in_a_row;
  m.samples =
      state_.samples_before + (m.step - state_.samples_before_step) * train_.plan.batch.global;
  m.optimizer = train_.config.optimizer.type;
  m.scheduler = train_.config.scheduler.type;
  m.states = train_.policy().optimizer_states;
  m.client_state = options.client_state;
  gather_rank_states(m, options.rank_state);
  const auto left_out = [&](int param) {
    return options.trainable_only && !train_.param(param).options.trainable;
  };
  const std::vector<std::uint64_t> digests =
      options.trainable_only ? value_digests(train_, left_out) : std::vector<std::uint64_t>{};
  if (train_.scaler.dynamic()) m.loss_scaler = record_of(train_.scaler.state());
  m.config = describe(train_.config);
  m.equality = equality_terms();
  for (std::size_t p = 0; p < train_.model.params.size(); ++p) {
    const ParamDeclaration& declaration = train_.model.params[p];
    const Place& place = train_.place(static_cast<int>(p));
    const SegmentBuffers& buffers = train_.arrays.segment(place);
    const bool trainable = declaration.options.trainable;
    m.parameters.push_back(
        {declaration.name,
         declaration.shape,
         checkpoint::safetensors_name(trainable ? buffers.master_dtype : buffers.dtype),
         trainable,
         {},
         trainable ? own_states(static_cast<int>(p)) : std::nullopt,
         checkpoint::safetensors_name(trainable ? buffers.state_dtype : DType::fp32)});
    if (left_out(static_cast<int>(p))) m.parameters.back().left_out = {0, digests[p]};
  }
  for (std::size_t u = 0; u < train_.model.units.size(); ++u)
    for (const int p : train_.model.borrowed(static_cast<int>(u)))
      m.parameters[p].used_by.push_back(train_.model.units[u].name);
  // Behind the parameters, in their own order.
  for (const BufferDeclaration& buffer : train_.model.buffers)
    m.parameters.push_back({.name = buffer.name,
                            .shape = buffer.shape,
                            .dtype = checkpoint::safetensors_name(buffer.dtype),
                            .trainable = false,
                            .used_by = {},
                            .buffer = true});
  return m;
}

// The list stays empty where no rank has a state of its own.
void Checkpointing::gather_rank_states(Manifest& manifest, const std::string& own) {
  constexpr std::int64_t most = 1 << 20, most_of_all = 64 << 20;
  const std::vector<std::int64_t> sizes =
      train_.ranks.gather_words("the ranks' own states", {std::ssize(own)});
  const std::int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  if (largest == 0) return;
  if (largest > most || std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) > most_of_all)
    throw UsageError("SaveOptions::rank_state has " + std::to_string(largest) +
                     " bytes on some rank; it may have " + std::to_string(most) + " on each and " +
                     std::to_string(most_of_all) + " on all: keep larger things in files");
  manifest.rank_states =
      train_.ranks.gather_bytes("the ranks' own states", std::as_bytes(std::span(own)), sizes);
}

// The states of a parameter that does not have all of the optimizer's.
std::optional<std::vector<std::string>> Checkpointing::own_states(int param) const {
  const std::vector<std::string>& all = train_.policy().optimizer_states;
  std::vector<std::string> own;
  for (std::size_t k = 0; k < all.size(); ++k)
    if (train_.arrays.has_state(param, k)) own.push_back(all[k]);
  if (own.size() == all.size()) return std::nullopt;
  return own;
}

// A function of the layout alone, so rank 0 knows every rank's.
std::vector<Located> Checkpointing::located_entries(int of_rank, bool trainable_only) const {
  std::vector<Located> entries;
  const int states = static_cast<int>(train_.policy().optimizer_states.size());
  for (const SegmentId& id : train_.layout().segments()) {
    const Segment& segment = train_.layout().segment(id);
    if (trainable_only && !segment.trainable) continue;
    const SegmentBuffers& buffers = train_.arrays.segment(id);
    const std::vector<ParamRange> pieces =
        params_in(train_.model, segment, segment.shard_of(of_rank));
    for (int kind = 0; kind <= (segment.trainable ? states : 0); ++kind) {
      const std::int64_t width = size_of(kind > 0            ? buffers.state_dtype
                                         : segment.trainable ? buffers.master_dtype
                                                             : buffers.dtype);
      for (const ParamRange& piece : pieces)
        if (kind == 0 || train_.arrays.has_state(piece.param, kind - 1))
          entries.push_back({{piece.param, kind, piece.param_begin, piece.count},
                             id.flat_unit,
                             id.segment,
                             piece.segment_begin,
                             width});
    }
  }
  for (int b = 0; b < std::ssize(train_.model.buffers) && of_rank == 0; ++b) {
    const BufferDeclaration& buffer = train_.model.buffers[b];
    const int number = static_cast<int>(train_.model.params.size()) + b;
    if (buffer.elements > 0)
      entries.push_back({{number, 0, 0, buffer.elements}, -1, -1, 0, size_of(buffer.dtype)});
  }
  // The widest first: every tensor is aligned to its elements.
  std::ranges::stable_sort(entries, std::greater<>(), &Located::width);
  std::int64_t end = 0;
  for (Located& located : entries)
    located.data_begin = std::exchange(end, end + located.range.count * located.width);
  return entries;
}

std::int64_t Checkpointing::own_bytes(bool trainable_only) const {
  const std::vector<Located> entries = located_entries(train_.rank(), trainable_only);
  return entries.empty() ? 0 : entries.back().data_end();
}

ArrayId Checkpointing::array_of(const Located& located) const {
  const int kind = located.range.kind;
  if (kind > 0) return {located.flat_unit, located.segment, ArrayKind::state, kind - 1};
  const bool trainable = train_.param(located.range.parameter).options.trainable;
  return {located.flat_unit, located.segment, trainable ? ArrayKind::master : ArrayKind::parameter};
}

// The data of this rank's file from byte `offset` on.
void Checkpointing::read_state(const PendingSave& save, const std::vector<Located>& entries,
                               std::int64_t offset, std::span<std::byte> out) const {
  auto entry = std::upper_bound(
      entries.begin(), entries.end(), offset,
      [](std::int64_t at, const Located& located) { return at < located.data_begin; });
  for (--entry; !out.empty(); ++entry) {
    const std::int64_t width = entry->width;
    const std::int64_t skipped = (offset - entry->data_begin) / width;
    const std::int64_t count = std::min(std::ssize(out) / width, entry->range.count - skipped);
    const std::int64_t begin = entry->offset + skipped;
    std::byte* to = out.data();
    if (entry->flat_unit < 0)
      std::memcpy(to, save.buffer_of(*entry).data() + skipped * width, count * width);
    else
      train_.store->visit(array_of(*entry), begin, begin + count, Access::read,
                          [&](std::int64_t, std::span<std::byte> part) {
                            std::memcpy(to, part.data(), part.size());
                            to += part.size();
                          });
    out = out.subspan(count * width);
    offset += count * width;
  }
}

// Writes values of dtype `stored`, converted to the dtype of the array.
void Checkpointing::write_as(const ArrayId& array, std::int64_t begin, DType stored,
                             std::span<const std::byte> bytes) {
  StateStore& store = *train_.store;
  const DType own = store.dtype_of(array);
  if (stored == own) return store.write(array, begin, bytes);
  const auto count = std::ssize(bytes) / size_of(stored);
  std::array<std::byte, 1 << 16> rounded;
  const std::int64_t most = std::ssize(rounded) / size_of(own);
  for (std::int64_t done = 0; done < count; done += most) {
    const std::int64_t part = std::min(count - done, most);
    optim::cast(bytes.data() + done * size_of(stored), stored, rounded.data(), own, part);
    store.write(array, begin + done, std::span(rounded).first(part * size_of(own)));
  }
}

// A range within this rank's slice.
void Checkpointing::deliver(const Manifest& manifest, const ElementRange& range,
                            std::span<const std::byte> bytes) {
  const int param = param_of_[range.parameter];
  if (const int buffer = buffer_of_[range.parameter]; buffer >= 0)
    return train_.buffers.write(buffer, range.begin, bytes);
  const Place& place = train_.place(param);
  const std::int64_t begin = place.offset + range.begin;
  const DType stored = checkpoint::dtype_named(manifest.dtype_of(range)).value();
  const auto write = [&](ArrayKind kind, int state = 0) {
    write_as({place, kind, state}, begin, stored, bytes);
  };
  if (range.kind > 0) return write(ArrayKind::state, state_of_[range.kind - 1]);
  if (train_.param(param).options.trainable && train_.arrays.segment(place).has_master())
    write(ArrayKind::master);
  write(ArrayKind::parameter);
}

// Where the optimizer is not sharded, every rank holds all of its state.
void Checkpointing::spread_states(const SegmentId& id) {
  const Segment& segment = train_.layout().segment(id);
  const SegmentBuffers& buffers = train_.arrays.segment(id);
  if (!train_.collective() || !segment.trainable || train_.policy().optimizer_sharded) return;
  for (int k = 0; k < std::ssize(buffers.states); ++k) {
    if (!buffers.has_whole_state(k)) {
      spread_partial_state({id, ArrayKind::state, k});
      continue;
    }
    train_.ranks.exchange_on_device(
        train_.subject(id.flat_unit), [&](comm::Communicator& communicator, Stream stream) {
          std::byte* all = buffers.states[k];
          all_gather(train_, communicator, stream, segment,
                     all + train_.rank() * segment.shard * size_of(buffers.state_dtype), all,
                     buffers.state_dtype);
        });
  }
}

// A state that some parameters of the segment lack has gaps: through a copy.
void Checkpointing::spread_partial_state(const ArrayId& array) {
  const SegmentBuffers& buffers = train_.arrays.segment(array);
  const int state = array.state;
  if (buffers.state_counts[state] == 0) return;
  const std::int64_t width = size_of(buffers.state_dtype);
  const std::vector<std::byte> whole = gather_whole(train_, array);
  for (const GroupRange& run : buffers.runs)
    if (run.state_begin[state] >= 0)
      copy_and_wait(train_.runtime, buffers.states[state] + run.state_begin[state] * width,
                    whole.data() + run.begin * width, (run.end - run.begin) * width);
}

}  // namespace detail

std::vector<SavedCheckpoint> list_checkpoints(const std::string& directory) {
  std::vector<SavedCheckpoint> saved;
  std::error_code failed;
  if (!std::filesystem::exists(std::filesystem::symlink_status(directory, failed))) return saved;
  for (const checkpoint::Candidate& candidate :
       checkpoint::candidates(checkpoint::Directory::open(directory)))
    saved.push_back(
        {candidate.tag, candidate.manifest ? candidate.manifest->step : 0, candidate.sequence()});
  return saved;
}

std::vector<std::string> set_aside_checkpoints(const std::string& directory,
                                               std::int64_t later_than_sequence) {
  return checkpoint::Saver(directory).set_aside_later_than(later_than_sequence);
}

}  // namespace zero
