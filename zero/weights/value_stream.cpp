#include "zero/weights/value_stream.h"

#include <algorithm>
#include <vector>

namespace zero::detail {

namespace {

// Copies elements of this rank's shard of a parameter to the device.
void read_shard(TrainState& train, const ArrayId& array, const Range& range, std::byte* to) {
  StateStore& store = *train.store;
  if (range.empty()) return;
  if (train.runtime.device().is_host() || range.end <= store.end_in_memory(array))
    return store.read(array, range.begin, range.end, to);
  std::vector<std::byte> on_host(range.count() * size_of(store.dtype_of(array)));
  store.read(array, range.begin, range.end, on_host.data());
  copy_and_wait(train.runtime, to, on_host.data(), std::ssize(on_host));
}

// A gather over a shard group, whose ranks hold adjacent parts of the segment.
struct ShardGather {
  TrainState& train;
  const ArrayId array;
  const Range wanted;             // of the segment
  const std::int64_t rank_count;  // elements of a rank
  const int ranks, own;

  DType dtype() const { return train.store->dtype_of(array); }
  Range part_of(int rank) const {
    return intersection(wanted, {rank * rank_count, (rank + 1) * rank_count});
  }
  std::byte* place_of(const Range& part, std::byte* to) const {
    return to + (part.begin - wanted.begin) * size_of(dtype());
  }
  void exchange(const Ranks::Transfer& transfer) const {
    train.group(GroupId::shard).exchange_on_device(train.subject(array.flat_unit), transfer);
  }

  void to_all(std::byte* to) const {
    if (const Range part = part_of(own); !part.empty())
      read_shard(train, array, part, place_of(part, to));
    exchange([&](comm::Communicator& communicator, Stream stream) {
      for (int rank = 0; rank < ranks; ++rank)
        if (const Range part = part_of(rank); !part.empty())
          communicator.broadcast(place_of(part, to), part.count(), dtype(), rank, stream);
    });
  }
  // `to` is null on ranks that only send.
  void to_one(int receiver, std::byte* to) const {
    comm::PairCounts counts(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      if (const Range part = part_of(rank); !part.empty()) counts.add(rank, receiver, part.count());
    const Range part = part_of(own);
    Arena staged;
    const std::byte* from = nullptr;
    if (!part.empty() && part.end <= train.store->end_in_memory(array)) {
      from = train.store->address(array, part.begin);
    } else if (!part.empty()) {
      staged = train.runtime.device().reserve(part.count() * size_of(dtype()),
                                              Arena::Sharing::private_memory, "elements to send");
      read_shard(train, array, part, staged.data());
      from = staged.data();
    }
    exchange([&](comm::Communicator& communicator, Stream stream) {
      communicator.all_to_all(from, to, counts, dtype(), stream);
    });
  }
};

std::int64_t bytes_of(const TrainState& train, int param) {
  return train.param(param).elements * size_of(train.arrays.segment(train.place(param)).dtype);
}

std::int64_t buffer_bytes(const TrainState& train, std::int64_t budget) {
  constexpr std::int64_t widest = 8;
  if (budget < widest)
    throw UsageError("a stream of weights has a budget of " + std::to_string(budget) +
                     " bytes; expected at least " + std::to_string(widest));
  std::int64_t largest = 0;
  for (int p = 0; p < std::ssize(train.model.params); ++p)
    largest = std::max(largest, bytes_of(train, p));
  return std::min(budget, largest);
}

int data_rank(const TrainState& train, int receiver) {
  if (receiver >= train.rank_count())
    throw UsageError("a stream of weights to rank " + std::to_string(receiver) + ": there are " +
                     std::to_string(train.rank_count()) + " ranks");
  return receiver;
}

}  // namespace

void gather_values(TrainState& train, int param, const Range& range, int receiver, std::byte* to) {
  if (range.empty()) return;
  const Place& place = train.place(param);
  const Segment& segment = train.layout().segment(place);
  const ProcessGrid& grid = train.policy().grid;
  const Range wanted{place.offset + range.begin, place.offset + range.end};
  const bool receives = receiver < 0 || receiver == train.rank();
  if (train.keeps_parameters() && !segment.encoded) {
    const SegmentArrays& arrays = train.arrays.segment(place);
    const std::int64_t width = size_of(arrays.dtype);
    if (receives)
      copy_and_wait(train.runtime, to, arrays[ArrayKind::parameter].data + wanted.begin * width,
                    wanted.count() * width);
    return;
  }
  const std::int64_t count = train.policy().shard(segment).count();
  const ShardGather gather{
      train, {place, ArrayKind::parameter_shard},      wanted,
      count, static_cast<int>(segment.length / count), grid.in_group(train.rank())};
  if (gather.ranks == 1) {
    if (receives) read_shard(train, gather.array, wanted, to);
  } else if (receiver < 0) {
    gather.to_all(to);
  } else if (grid.group(receiver) == grid.group(train.rank())) {
    gather.to_one(grid.in_group(receiver), receives ? to : nullptr);
  }
}

ValueStream::ValueStream(TrainState& train, std::int64_t budget, int receiver)
    : train_(train), bytes_(buffer_bytes(train, budget)), receiver_(data_rank(train, receiver)) {
  if (!receives() || bytes_ == 0) return;
  Ledger& ledger = train.runtime.ledger();
  requests_.add(MemoryCategory::communication, bytes_, buffer_);
  requests_.plan(ledger);
  arena_ = train.runtime.device().reserve(requests_.bytes(), Arena::Sharing::private_memory,
                                          "a stream of weights");
  requests_.take(arena_, ledger);
}

void ValueStream::visit(int param, const std::function<void(const WeightPiece&)>& each) {
  const ParamDeclaration& declaration = train_.param(param);
  const DType dtype = train_.arrays.segment(train_.place(param)).dtype;
  const std::int64_t most = bytes_ / size_of(dtype);
  for (std::int64_t begin = 0; begin < declaration.elements; begin += most) {
    const Range range{begin, std::min(begin + most, declaration.elements)};
    gather_values(train_, param, range, receiver_, buffer_);
    const auto bytes = receives() ? static_cast<std::size_t>(range.count() * size_of(dtype)) : 0;
    each({declaration.name, declaration.shape, dtype, begin, {buffer_, bytes}});
  }
}

}  // namespace zero::detail
