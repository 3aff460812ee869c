#include "zero/state/array_exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "zero/base/hash.h"
#include "zero/runtime/agreement.h"

namespace zero::detail {

void all_gather(const TrainState& train, comm::Communicator& communicator, Stream stream,
                const Segment& segment, const std::byte* slice, std::byte* whole, DType dtype) {
  const std::int64_t piece =
      piece_elements(train.config.zero_optimization.allgather_bucket_size, train.rank_count());
  for (std::int64_t begin = 0; begin < segment.shard; begin += piece) {
    const std::int64_t offset = begin * size_of(dtype);
    communicator.all_gather(slice + offset, whole + offset, std::min(piece, segment.shard - begin),
                            dtype, segment.shard, stream);
  }
}

void spread_parameters(TrainState& train, const SegmentId& id) {
  if (!train.collective()) return;
  const Segment& segment = train.layout().segment(id);
  const SegmentBuffers& buffers = train.arrays.segment(id);
  train.ranks.exchange_on_device(train.subject(id.flat_unit), [&](comm::Communicator& communicator,
                                                                  Stream stream) {
    if (!train.policy().parameters_sharded)
      all_gather(train, communicator, stream, segment, buffers.shard, buffers.whole, buffers.dtype);
    if (segment.trainable && buffers.has_master() && !train.policy().optimizer_sharded)
      all_gather(train, communicator, stream, segment,
                 buffers.master + train.rank() * segment.shard * size_of(buffers.master_dtype),
                 buffers.master, buffers.master_dtype);
  });
}

std::vector<std::byte> gather_whole(TrainState& train, const ArrayId& array) {
  const Segment& segment = train.layout().segment(array);
  StateStore& store = *train.store;
  const DType dtype = store.dtype_of(array);
  std::vector<std::byte> whole(static_cast<std::size_t>(segment.length * size_of(dtype)));
  const std::int64_t begin = train.rank() * segment.shard;
  std::byte* slice = whole.data() + begin * size_of(dtype);
  if (array.kind != ArrayKind::state) {
    store.read(array, begin, begin + segment.shard, slice);
  } else {
    for (const ParamRange& piece : train.own_params(segment))
      if (store.holds(array, piece.param))
        store.read(array, piece.segment_begin, piece.segment_begin + piece.count,
                   whole.data() + piece.segment_begin * size_of(dtype));
  }
  if (train.collective())
    train.ranks.exchange(train.subject(array.flat_unit), [&](comm::Communicator& communicator) {
      all_gather(train, communicator, {}, segment, slice, whole.data(), dtype);
    });
  return whole;
}

std::uint64_t digest_of(TrainState& train, const ArrayId& array, std::string_view kind,
                        int only_param) {
  const auto bytes = static_cast<std::size_t>(size_of(train.store->dtype_of(array)));
  std::uint64_t sum = 0;
  for (const ParamRange& piece : train.own_params(train.layout().segment(array))) {
    if (!train.store->holds(array, piece.param)) continue;
    if (only_param >= 0 && piece.param != only_param) continue;
    const std::uint64_t key = hash_of(train.param(piece.param).name) ^ hash_of(kind);
    std::int64_t element = piece.param_begin;
    train.store->visit(array, piece.segment_begin, piece.segment_begin + piece.count, Access::read,
                       [&](std::int64_t, std::span<std::byte> part) {
                         for (std::size_t at = 0; at < part.size(); at += bytes, ++element) {
                           std::uint64_t bits = 0;
                           std::memcpy(&bits, &part[at], bytes);
                           sum += mixed(mixed(key + static_cast<std::uint64_t>(element)) + bits);
                         }
                       });
  }
  return sum;
}

std::vector<std::uint64_t> value_digests(TrainState& train,
                                         const std::function<bool(int param)>& wanted) {
  std::vector<std::int64_t> words(train.model.params.size());
  for (int p = 0; p < std::ssize(words); ++p)
    if (wanted(p))
      words[p] = std::bit_cast<std::int64_t>(
          digest_of(train, {train.place(p), ArrayKind::parameter}, "value", p));
  std::vector<std::uint64_t> digests(words.size());
  const std::vector<std::int64_t> all =
      train.ranks.gather_words("the digests of parameters", words);
  for (std::size_t i = 0; i < all.size(); ++i)
    digests[i % words.size()] += std::bit_cast<std::uint64_t>(all[i]);
  return digests;
}

void check_replicas(TrainState& train) {
  Ranks* model_parallel = train.ranks.model_parallel();
  if (std::exchange(train.replicas_checked, true) || model_parallel == nullptr) return;
  const auto replicated = [&](int p) { return !train.param(p).options.split; };
  const std::vector<std::uint64_t> digests = value_digests(train, replicated);
  std::string lines;
  for (int p = 0; p < std::ssize(digests); ++p)
    if (replicated(p))
      lines += train.param(p).name + " " + to_text(train.param(p).shape) + " digest " +
               std::to_string(digests[p]) + "\n";
  agree_on_text(*model_parallel, "replicated parameter", lines,
                "declare what each of them holds another part of with .split = true, and give the "
                "others equal values");
}

}  // namespace zero::detail
