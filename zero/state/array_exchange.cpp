#include "zero/state/array_exchange.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "comm/wire/exchange.h"
#include "optim/cpu/kernels.h"
#include "zero/base/hash.h"
#include "zero/runtime/agreement.h"

namespace zero::detail {

namespace {

constexpr std::int64_t digest_grain = 1 << 16;  // elements of a thread

// Copies this rank's elements of an array to memory for `range` of the segment.
void read_slice(TrainState& train, const ArrayId& array, const Range& range, std::byte* to) {
  StateStore& store = *train.store;
  const std::int64_t width = size_of(store.dtype_of(array));
  const Segment& segment = train.layout().segment(array);
  const Range own = train.policy().slice(segment);
  const auto place_of = [&](std::int64_t at) { return to + (at - range.begin) * width; };
  if (array.kind != ArrayKind::state)
    return store.read(array, own.begin, own.end, place_of(own.begin));
  for (const ParamRange& piece : train.own_params(segment))
    if (store.holds(array, piece.param))
      store.read(array, piece.segment_begin, piece.range().end, place_of(piece.segment_begin));
}

// Gathers every replica's slice of an array that all replicas hold: `held` is that array, including
// this rank's slice.
void gather_over_replicas(TrainState& train, const ArrayId& array, std::byte* held) {
  if (!train.has_replicas()) return;
  const DType dtype = train.store->dtype_of(array);
  const Segment& segment = train.layout().segment(array);
  const std::int64_t skipped = train.policy().slice_in_shard(segment);
  const EvenSlice own{held + skipped * size_of(dtype), segment.slice, dtype};
  train.group(GroupId::replicas)
      .exchange(train.subject(array.flat_unit), [&](comm::Communicator& communicator) {
        all_gather(train, {communicator}, {}, own, held);
      });
}

}  // namespace

void all_gather(const TrainState& train, const Hops& hops, Stream stream, const EvenSlice& own,
                std::byte* whole, const GatherFormats& formats) {
  const auto& [inside, between, errors] = formats;
  const comm::wire::Workspace workspace{train.runtime.codec(), train.arrays.wire_staging(), stream,
                                        errors};
  const std::int64_t piece = train.policy().gather_piece(hops.ranks());
  for (std::int64_t begin = 0; begin < own.count; begin += piece) {
    const std::int64_t offset = begin * size_of(own.dtype), n = std::min(piece, own.count - begin);
    if (hops.second == nullptr)
      comm::wire::all_gather(hops.first, inside, own.data + offset, whole + offset,
                             {n, own.stride, own.dtype}, workspace);
    else
      comm::wire::all_gather({hops.first, inside}, {*hops.second, between}, own.data + offset,
                             whole + offset,
                             {n, own.stride, hops.first.size() * own.stride, own.dtype}, workspace);
  }
}

void gather(const TrainState& train, const Route& route, const Hops& hops, Stream stream,
            const comm::wire::ErrorTarget& errors) {
  const auto& [inside, between] = std::pair(route.legs.front().codec, route.legs.back().codec);
  const comm::wire::Codec plain(comm::wire::Format::none);
  const bool encodes = inside != plain || between != plain;
  const std::byte* own = train.arrays.array(route.id, route.from);
  all_gather(train, hops, stream, {own, route.count, route.from.dtype},
             train.arrays.array(route.id, route.to),
             {inside, between, encodes ? errors : comm::wire::ErrorTarget()});
}

void spread_slices(TrainState& train, const SegmentId& id, std::byte* whole, DType dtype) {
  const std::byte* own = whole + train.arrays.segment(id).held.begin * size_of(dtype);
  const std::int64_t slice = train.layout().segment(id).slice;
  train.ranks.exchange_on_device(
      train.subject(id.flat_unit), [&](comm::Communicator& communicator, Stream stream) {
        all_gather(train, {communicator}, stream, {own, slice, dtype}, whole);
      });
}

void spread_to_replicas(TrainState& train, const ArrayId& array) {
  // All replicas keep the parameters; other arrays are replicated only if replicas update the same
  // elements.
  const bool replicated =
      array.kind == ArrayKind::parameter_shard || train.policy().updates == Holding::shard;
  if (!train.has_replicas() || !replicated) return;
  const Segment& segment = train.layout().segment(array);
  const DType dtype = train.store->dtype_of(array);
  const std::int64_t width = size_of(dtype);
  const Range held = train.policy().shard(segment);
  std::vector<std::byte> values(held.count() * width);
  read_slice(train, array, held, values.data());
  gather_over_replicas(train, array, values.data());
  for (const ParamRange& piece : params_in(train.model, segment, held))
    if (train.store->holds(array, piece.param))
      train.store->write(array, piece.segment_begin, dtype,
                         std::span(values).subspan((piece.segment_begin - held.begin) * width,
                                                   piece.count * width));
}

void spread_parameters(TrainState& train, const SegmentId& id) {
  if (!train.collective()) return;
  const Segment& segment = train.layout().segment(id);
  const SegmentArrays& buffers = train.arrays.segment(id);
  const bool spreads_master = segment.trainable && buffers.has_master();
  if (train.has_replicas()) {
    spread_to_replicas(train, {id, ArrayKind::parameter_shard});
    if (spreads_master) spread_to_replicas(train, {id, ArrayKind::master});
    return;
  }
  if (train.keeps_parameters()) {
    const Route route = train.plan.routes.gather(id);
    const std::string_view subject = train.subject(id.flat_unit);
    Ranks& first = train.group(route.legs.front().group);
    if (route.legs.size() == 1)
      first.exchange_on_device(subject, [&](comm::Communicator& communicator, Stream stream) {
        gather(train, route, {communicator}, stream);
      });
    else
      first.exchange_with(
          train.group(route.legs.back().group), subject,
          [&](comm::Communicator& inside, comm::Communicator& between, Stream stream) {
            gather(train, route, {inside, &between}, stream);
          });
  }
  if (!spreads_master || !buffers.updates_all) return;
  spread_slices(train, id, buffers[ArrayKind::master].data, buffers.master_dtype);
}

namespace {

// A state that some parameters of the segment lack has gaps, and is sent through a copy.
void spread_partial_state(TrainState& train, const ArrayId& array) {
  const SegmentArrays& buffers = train.arrays.segment(array);
  const int state = array.number;
  if (buffers.groups->state_counts[state] == 0) return;
  const std::int64_t width = size_of(buffers.state_dtype);
  const std::vector<std::byte> whole = gather_whole(train, array);
  for (const GroupRange& run : buffers.groups->runs)
    if (run.state_begin[state] >= 0)
      copy_and_wait(train.runtime, buffers.states[state] + run.state_begin[state] * width,
                    whole.data() + run.begin * width, (run.end - run.begin) * width);
}

}  // namespace

void spread_states(TrainState& train, const SegmentId& id) {
  const SegmentArrays& buffers = train.arrays.segment(id);
  if (!train.collective() || !train.layout().segment(id).trainable) return;
  for (int k = 0; k < std::ssize(buffers.states); ++k) {
    spread_to_replicas(train, {id, ArrayKind::state, k});
    if (!buffers.updates_all) continue;
    if (buffers.has_whole_state(k))
      spread_slices(train, id, buffers.states[k], buffers.state_dtype);
    else
      spread_partial_state(train, {id, ArrayKind::state, k});
  }
}

std::vector<std::byte> gather_whole(TrainState& train, const ArrayId& array) {
  const Segment& segment = train.layout().segment(array);
  const DType dtype = train.store->dtype_of(array);
  std::vector<std::byte> whole(static_cast<std::size_t>(segment.length * size_of(dtype)));
  read_slice(train, array, {0, segment.length}, whole.data());
  if (!train.collective()) return whole;
  const Range held = train.policy().shard(segment);
  std::byte* own = whole.data() + held.begin * size_of(dtype);
  gather_over_replicas(train, array, own);
  train.group(GroupId::shard)
      .exchange(train.subject(array.flat_unit), [&](comm::Communicator& communicator) {
        all_gather(train, {communicator}, {}, {own, held.count(), dtype}, whole.data());
      });
  return whole;
}

std::uint64_t digest_of(TrainState& train, const ArrayId& array, std::string_view kind,
                        int only_param) {
  const DType dtype = train.store->dtype_of(array);
  std::atomic<std::uint64_t> sum = 0;
  for (const ParamRange& piece : train.own_params(train.layout().segment(array))) {
    if (!train.store->holds(array, piece.param)) continue;
    if (only_param >= 0 && piece.param != only_param) continue;
    const std::uint64_t key = hash_of(train.param(piece.param).name) ^ hash_of(kind);
    const TensorSplit split = train.split(piece.param);
    std::int64_t element = train.begin_of_own_part(piece.param) + piece.param_begin;
    train.store->visit(array, piece.segment_begin, piece.segment_begin + piece.count,
                       [&](std::int64_t, std::span<std::byte> part) {
                         const std::int64_t count = std::ssize(part) / size_of(dtype);
                         train.runtime.pool().for_ranges(
                             count, digest_grain, [&](std::int64_t begin, std::int64_t end) {
                               split.for_parts(
                                   element + begin, end - begin,
                                   [&](std::int64_t from, std::int64_t to, std::int64_t run) {
                                     sum += optim::cpu::kernels().hash(
                                         part.data() + (from - element) * size_of(dtype), dtype,
                                         run, key + static_cast<std::uint64_t>(to));
                                   });
                             });
                         element += count;
                       });
  }
  return sum;
}

std::vector<std::uint64_t> value_digests(TrainState& train, Ranks& ranks,
                                         const std::function<bool(int param)>& wanted) {
  std::vector<std::int64_t> words(train.model.params.size());
  for (int p = 0; p < std::ssize(words); ++p)
    if (wanted(p))
      words[p] = std::bit_cast<std::int64_t>(
          digest_of(train, {train.place(p), ArrayKind::parameter_shard}, "value", p));
  std::vector<std::uint64_t> digests(words.size());
  const std::vector<std::int64_t> all = ranks.gather_words("the digests of parameters", words);
  for (std::size_t i = 0; i < all.size(); ++i)
    digests[i % words.size()] += std::bit_cast<std::uint64_t>(all[i]);
  return digests;
}

void check_replicas(TrainState& train) {
  Ranks* tensor = train.tensor();
  if (std::exchange(train.replicas_checked, true) || tensor == nullptr) return;
  const auto replicated = [&](int p) { return !train.param(p).options.split; };
  const std::vector<std::uint64_t> digests = value_digests(train, train.ranks, replicated);
  std::string lines;
  for (int p = 0; p < std::ssize(digests); ++p)
    if (replicated(p))
      lines += train.param(p).name + " " + to_text(train.param(p).shape) + " digest " +
               std::to_string(digests[p]) + "\n";
  agree_on_text(*tensor, "replicated parameter", lines,
                "declare what each of them holds another part of with .split = true, and give the "
                "others equal values");
}

}  // namespace zero::detail
