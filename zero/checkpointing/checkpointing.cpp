#include "zero/checkpointing/checkpointing.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
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

using checkpoint::Manifest;
using checkpoint::ShardEntry;

std::string cpu_type() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos)
      return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string hexadecimal(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

DType dtype_of_name(const std::string& name) {
  if (name == "I64") return DType::int64;
  return name == "BF16" ? DType::bf16 : name == "F16" ? DType::fp16 : DType::fp32;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

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
          {"layout_hash", hexadecimal(train_.plan.layout.hash)}};
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
    if (left_out(static_cast<int>(p))) m.parameters.back().left_out = digests[p];
  }
  for (std::size_t u = 0; u < train_.model.units.size(); ++u)
    for (const int p : train_.model.borrowed(static_cast<int>(u)))
      m.parameters[p].used_by.push_back(train_.model.units[u].name);
  describe_buffers(m);
  return m;
}

// Behind the parameters, in their own order.
void Checkpointing::describe_buffers(Manifest& manifest) const {
  for (const BufferDeclaration& buffer : train_.model.buffers) {
    checkpoint::ManifestParameter described;
    described.name = buffer.name;
    described.shape = buffer.shape;
    described.dtype = checkpoint::safetensors_name(buffer.dtype);
    described.trainable = false;
    described.buffer = true;
    manifest.parameters.push_back(std::move(described));
  }
}

// None where no rank has any.
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
  std::vector<std::int64_t> words(static_cast<std::size_t>((largest + 7) / 8));
  std::memcpy(words.data(), own.data(), own.size());
  const std::vector<std::int64_t> all = train_.ranks.gather_words("the ranks' own states", words);
  for (std::size_t r = 0; r < sizes.size(); ++r)
    manifest.rank_states.emplace_back(reinterpret_cast<const char*>(&all[r * words.size()]),
                                      static_cast<std::size_t>(sizes[r]));
}

// Named only where they are not all of the optimizer's.
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
  // The widest first: every tensor is aligned to its elements.
  std::map<std::int64_t, std::vector<Located>, std::greater<>> by_width;
  const int states = static_cast<int>(train_.policy().optimizer_states.size());
  for (const SegmentId& id : train_.layout().segments()) {
    const Segment& segment = train_.layout().segment(id);
    if (trainable_only && !segment.trainable) continue;
    const SegmentBuffers& buffers = train_.arrays.segment(id);
    const DType of_parameter = segment.trainable ? buffers.master_dtype : buffers.dtype;
    const std::int64_t begin = of_rank * segment.shard;
    const std::vector<Piece> pieces =
        pieces_between(train_.model, segment, begin, begin + segment.shard);
    for (int kind = 0; kind <= (segment.trainable ? states : 0); ++kind) {
      const DType stored = kind == 0 ? of_parameter : buffers.state_dtype;
      for (const Piece& piece : pieces)
        if (kind == 0 || train_.arrays.has_state(piece.param, kind - 1))
          by_width[size_of(stored)].push_back({{piece.param, kind, piece.param_begin, piece.count},
                                               id.flat_unit,
                                               id.segment,
                                               piece.segment_begin,
                                               0,
                                               piece.count * size_of(stored)});
    }
  }
  for (int b = 0; b < static_cast<int>(train_.model.buffers.size()) && of_rank == 0; ++b) {
    const BufferDeclaration& buffer = train_.model.buffers[b];
    const int number = static_cast<int>(train_.model.params.size()) + b;
    if (buffer.elements > 0)
      by_width[size_of(buffer.dtype)].push_back(
          {{number, 0, 0, buffer.elements}, -1, -1, 0, 0, buffer.elements * size_of(buffer.dtype)});
  }
  std::vector<Located> entries;
  std::int64_t end = 0;
  for (const auto& [width, some] : by_width)
    for (const Located& located : some) {
      entries.push_back(located);
      entries.back().data_begin = std::exchange(end, end + located.bytes);
    }
  return entries;
}

std::int64_t Checkpointing::own_bytes(bool trainable_only) const {
  const std::vector<Located> entries = located_entries(train_.rank(), trainable_only);
  return entries.empty() ? 0 : entries.back().data_begin + entries.back().bytes;
}

ArrayId Checkpointing::array_of(const Located& located) const {
  const int kind = located.entry.kind;
  if (kind > 0) return {located.flat_unit, located.segment, ArrayKind::state, kind - 1};
  const bool trainable = train_.param(located.entry.parameter).options.trainable;
  return {located.flat_unit, located.segment, trainable ? ArrayKind::master : ArrayKind::parameter};
}

// The data of this rank's file from byte `offset` on.
void Checkpointing::read_state(const PendingSave& save, const std::vector<Located>& entries,
                               std::int64_t offset, std::span<std::byte> out) const {
  auto entry = std::upper_bound(
      entries.begin(), entries.end(), offset,
      [](std::int64_t at, const Located& located) { return at < located.data_begin; });
  for (--entry; !out.empty(); ++entry) {
    const std::int64_t width = entry->bytes / entry->entry.count;
    const std::int64_t skipped = (offset - entry->data_begin) / width;
    const std::int64_t count = std::min(std::ssize(out) / width, entry->entry.count - skipped);
    const std::int64_t begin = entry->offset + skipped;
    std::byte* to = out.data();
    if (entry->flat_unit < 0)
      std::memcpy(to, save.buffer_of(*entry).data() + skipped * width,
                  static_cast<std::size_t>(count * width));
    else
      train_.store->visit(array_of(*entry), begin, begin + count, Access::read,
                          [&](std::int64_t, std::span<std::byte> part) {
                            std::memcpy(to, part.data(), part.size());
                            to += part.size();
                          });
    out = out.subspan(static_cast<std::size_t>(count * width));
    offset += count * width;
  }
}

// In the dtype of the array.
void Checkpointing::write_as(const ArrayId& array, std::int64_t begin, DType stored,
                             std::span<const std::byte> bytes) {
  StateStore& store = *train_.store;
  const DType own = store.dtype_of(array);
  if (stored == own) return store.write(array, begin, bytes);
  const auto count = static_cast<std::int64_t>(bytes.size()) / size_of(stored);
  std::array<float, 1 << 14> values;
  std::array<std::byte, values.size() * sizeof(float)> rounded;
  for (std::int64_t done = 0; done < count; done += std::ssize(values)) {
    const std::int64_t part = std::min(count - done, std::ssize(values));
    optim::cast(bytes.data() + done * size_of(stored), stored, values.data(), DType::fp32, part);
    optim::cast(values.data(), DType::fp32, rounded.data(), own, part);
    store.write(array, begin + done,
                std::span(rounded).first(static_cast<std::size_t>(part * size_of(own))));
  }
}

// Elements of the parameter from `first` on, all within this rank's slice.
void Checkpointing::deliver(const Manifest& manifest, const ShardEntry& entry, std::int64_t first,
                            std::span<const std::byte> bytes) {
  const int param = param_of_[entry.parameter];
  if (const int buffer = buffer_of_[entry.parameter]; buffer >= 0)
    return train_.buffers.write(buffer, first, bytes);
  const Place& place = train_.place(param);
  const std::int64_t begin = place.offset + first;
  const DType stored = dtype_of_name(manifest.dtype_of(entry));
  const auto write = [&](ArrayKind kind, int state = 0) {
    write_as({place, kind, state}, begin, stored, bytes);
  };
  if (entry.kind > 0) return write(ArrayKind::state, state_of_[entry.kind - 1]);
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
  if (buffers.state_counts[array.state] == 0) return;
  const std::int64_t width = size_of(buffers.state_dtype);
  const std::vector<std::byte> whole = gather_whole(train_, array);
  for (const UpdateRun& run : buffers.runs)
    if (run.state_begin[array.state] >= 0)
      copy_and_wait(train_.runtime,
                    buffers.states[array.state] + run.state_begin[array.state] * width,
                    whole.data() + run.begin * width, (run.end - run.begin) * width);
}

}  // namespace detail

std::vector<SavedCheckpoint> list_checkpoints(const std::string& directory) {
  std::vector<SavedCheckpoint> saved;
  std::error_code failed;
  if (!std::filesystem::exists(std::filesystem::symlink_status(directory, failed))) return saved;
  for (const checkpoint::Candidate& candidate :
       checkpoint::candidates(checkpoint::Directory::open(directory)))
    saved.push_back({candidate.tag, candidate.manifest ? candidate.manifest->step : 0,
                     candidate.manifest ? candidate.manifest->sequence : 0});
  return saved;
}

std::vector<std::string> set_aside_checkpoints(const std::string& directory,
                                               std::int64_t later_than_sequence) {
  return checkpoint::Saver(directory).set_aside_later_than(later_than_sequence);
}

}  // namespace zero
