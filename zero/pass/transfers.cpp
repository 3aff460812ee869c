#include "zero/pass/transfers.h"

#include <algorithm>

#include "zero/pass/device_range.h"

namespace zero::detail {

void Transfers::count_as_issued(Op op, int flat_unit, std::int64_t elements) {
  for (const auto value : {static_cast<std::uint64_t>(op), static_cast<std::uint64_t>(flat_unit),
                           static_cast<std::uint64_t>(elements)})
    issued_hash_ = (issued_hash_ ^ value) * 0x100000001b3u;
}

void Transfers::transfer(GroupId first, std::optional<GroupId> second, int flat_unit, Work work) {
  if (!train_.collective()) {
    train_.runtime.communication().enqueue([work = std::move(work)](Stream stream) {
      maybe_delay();
      work(nullptr, stream);
    });
  } else if (!second) {
    train_.group(first).communicate(
        [this, flat_unit, work = std::move(work)](comm::Communicator& communicator, Stream stream) {
          exchange({communicator}, train_.subject(flat_unit), work, stream);
        });
  } else {
    train_.group(first).communicate_with(
        train_.group(*second),
        [this, flat_unit, work = std::move(work)](comm::Communicator& inside,
                                                  comm::Communicator& between, Stream stream) {
          exchange({inside, &between}, train_.subject(flat_unit), work, stream);
        });
  }
}

void Transfers::exchange(const Hops& hops, const std::string& subject, const Work& work,
                         Stream stream) {
  for (comm::Communicator* communicator : {&hops.first, hops.second}) {
    if (communicator == nullptr) continue;
    communicator->set_subject(subject);
    communicator->use_staging(staging_.data(), staging_.size());
    traffic_ -= communicator->traffic();
  }
  work(&hops, stream);
  traffic_ += hops.first.traffic();
  if (hops.second != nullptr) traffic_ += hops.second->traffic();
}

void Transfers::queue_for_update(int flat_unit, Ranks::Transfer operation) {
  count_as_issued(Op::update, flat_unit, 0);
  transfer(update_group(train_.plan), {}, flat_unit,
           [operation = std::move(operation)](const Hops* hops, Stream stream) {
             operation(hops->first, stream);
           });
}

void Transfers::reserve_staging() {
  EnumArray<GroupId, std::vector<std::pair<std::int64_t, DType>>, group_id_count> sums;
  for (const SegmentId& id : train_.layout().segments()) {
    if (!train_.layout().segment(id).trainable) continue;
    for (const Route& route : train_.plan.routes.sums(id))
      for (const Leg& leg : route.legs)
        if (leg.codec.format == comm::wire::Format::none && route.kind == Route::Kind::sum)
          sums[leg.group].emplace_back(
              std::min(train_.policy().reduce_piece(route.parts()), route.count), route.wire);
  }
  std::int64_t bytes = 0;
  for (int group = 0; group < group_id_count; ++group) {
    const auto& needed = sums[static_cast<std::size_t>(group)];
    if (needed.empty()) continue;
    train_.group(static_cast<GroupId>(group))
        .exchange_on_device("start-up", [&](comm::Communicator& communicator, Stream) {
          for (const auto& [count, dtype] : needed)
            bytes = std::max(bytes, communicator.staging_bytes(count, dtype));
        });
  }
  if (bytes == 0) return;
  staging_request_.add(MemoryCategory::communication, bytes, staging_memory_);
  staging_request_.plan(train_.runtime.ledger());
  staging_ = train_.runtime.device().reserve(bytes, Arena::Sharing::private_memory,
                                             "the staging of sums in rank order");
  staging_request_.take(staging_, train_.runtime.ledger());
}

void Transfers::issue(const Instruction& instruction) {
  if (target_of(instruction.op) == Target::boundary) return queue_crossing(instruction);
  const FlatUnit& flat = train_.layout().flat_unit(instruction.target);
  count_as_issued(instruction.op, instruction.target, flat.elements());
  const DeviceRange range(train_.runtime, instruction.op, flat.name);
  if (instruction.op == Op::add_uses) return queue_sum_of_uses(instruction.target);
  queue(instruction);
}

// The order of the sum is that of the stages. A rank that updates the whole has the whole sum apart
// from its shard: the shards of the result replace it.
void Transfers::queue_sum_of_uses(int flat_unit) {
  for (const SegmentId& id : train_.layout().trainable_of(flat_unit)) {
    const ArrayId gradient{id, ArrayKind::gradient_shard};
    const Segment& segment = train_.layout().segment(id);
    const bool updates_all = !train_.policy().optimizer_sharded();
    const Range own =
        updates_all ? train_.policy().shard(segment) : train_.policy().updated(segment);
    train_.shared_with(flat_unit).communicate(
        [this, flat_unit, data = train_.store->address(gradient, own.begin), count = own.count(),
         dtype = train_.store->dtype_of(gradient)](comm::Communicator& communicator,
                                                   Stream stream) {
          const auto sum = [&](const Hops* hops, Stream on) {
            hops->first.all_reduce(data, count, dtype, on);
          };
          exchange({communicator}, train_.subject(flat_unit), sum, stream);
        });
    spread_gradients(id);
  }
}

// A broadcast among the two ranks, of which that of the earlier run is the first.
void Transfers::queue_crossing(const Instruction& instruction) {
  const Op op = instruction.op;
  const bool backward = op == Op::receive_gradient || op == Op::send_gradient;
  const bool to_before = op == Op::receive || op == Op::send_gradient;
  const UnitRun& run = train_.model.runs[instruction.target];
  const char* name = to_before ? (backward ? input_gradient_name : input_name)
                               : (backward ? output_gradient_name : output_name);
  const int unit = to_before ? run.begin : run.end - 1;
  const Messages::Key key{unit, name, instruction.micro_batch};
  const KeptArray array = train_.kept(unit, name, instruction.micro_batch);
  // Counted on all data ranks alike, though all stages of a data rank may lack the micro batch.
  count_as_issued(op, instruction.micro_batch, array.count);
  if (instruction.micro_batch >= train_.plan.own_micro_steps()) return;
  const AxisPlace& place = train_.plan.on.pipe;
  const int lower = to_before ? place.before() : place.rank,
            upper = to_before ? place.rank : place.after();
  const std::string subject = (backward ? "the gradient of micro batch " : "micro batch ") +
                              std::to_string(instruction.micro_batch) + " between stages " +
                              std::to_string(lower) + " and " + std::to_string(upper);
  const GroupId beside = to_before ? GroupId::link_before : GroupId::link_after;
  train_.group(lower > upper ? GroupId::link_around : beside)
      .communicate([=, this](comm::Communicator& communicator, Stream stream) {
        const int sender = backward ? 1 : 0;
        const bool receives = op == Op::receive || op == Op::receive_gradient;
        const auto cross = [&](const Hops* hops, Stream on) {
          if (!array.sized_by_program)
            return hops->first.broadcast(array.data, array.count, array.dtype, sender, on);
          std::span<std::byte> bytes = train_.messages.at(key);
          std::int64_t size = std::ssize(bytes);
          hops->first.broadcast(&size, 1, DType::int64, sender, on);
          if (receives) bytes = train_.messages.resize(key, size);
          hops->first.broadcast(bytes.data(), size, DType::uint8, sender, on);
        };
        exchange({communicator}, subject, cross, stream);
      });
}

// Choose the routes now, because the micro step may have continued when the work runs.
void Transfers::queue(const Instruction& instruction) {
  const int flat = instruction.target;
  queue(train_.plan.routes.of(instruction.op, flat, train_.position(instruction)), flat,
        fills_slot(instruction.op));
}

void Transfers::queue(std::vector<RouteWork> works, int flat_unit, bool shows_parameters) {
  for (RouteWork& each : works) {
    const GroupId group = each.first;
    const std::optional<GroupId> second = each.second;
    transfer(group, second, flat_unit,
             [this, flat_unit, shows_parameters, work = std::move(each)](const Hops* hops,
                                                                         Stream stream) {
               if (shows_parameters) hidden_.show_parameters(flat_unit);
               for (const Route& route : work.routes) run(route, work, hops, stream);
               if (work.ends_gradient) hidden_.hide_gradients(flat_unit);
             });
  }
}

void Transfers::spread_gradients(const SegmentId& id) {
  queue(train_.plan.routes.spread_gradient(id), id.flat_unit, false);
}

void Transfers::run(const Route& route, const RouteWork& work, const Hops* hops, Stream stream) {
  if (route.kind == Route::Kind::copy)
    assign_or_add(at(route, route.to), at(route, route.from), route.count, route.replaces, stream);
  else if (route.kind == Route::Kind::gather)
    zero::detail::gather(train_, route, *hops, stream, errors_of(route.id.flat_unit));
  else if (route.kind == Route::Kind::fold)
    fold(route, hops, stream);
  else
    sum(route, legs_of(route, work, *hops), *hops, stream);
}

Hops Transfers::legs_of(const Route& route, const RouteWork& work, const Hops& hops) {
  if (route.legs.size() > 1 || hops.second == nullptr) return hops;
  return {route.legs.front().group == work.first ? hops.first : *hops.second};
}

void Transfers::cast(const Typed& from, const Typed& to, std::int64_t count, Stream stream) const {
  if (from.dtype != to.dtype)
    train_.runtime.kernels().cast(from.data, from.dtype, to.data, to.dtype, count, stream);
  else if (from.data != to.data)
    train_.runtime.device().copy(to.data, from.data, count * size_of(to.dtype), stream);
}

void Transfers::assign_or_add(const Typed& sum, const Typed& addend, std::int64_t count, bool first,
                              Stream stream) const {
  if (first) return cast(addend, sum, count, stream);
  train_.runtime.kernels().accumulate(sum.data, sum.dtype, addend.data, addend.dtype, count,
                                      stream);
}

void Transfers::fold(const Route& route, const Hops* hops, Stream stream) {
  const Typed to = at(route, route.to);
  const bool keeps = train_.policy().keeps_open_group();
  const std::int64_t piece = std::min(train_.policy().reduce_piece(route.parts()), route.count);
  for (std::int64_t begin = 0; begin < route.count; begin += piece) {
    const std::int64_t count = std::min(piece, route.count - begin);
    FoldedPiece folded{route.summands,
                       {nullptr, route.wire},
                       {to.data + begin * size_of(to.dtype), to.dtype},
                       keeps ? at(route, {ArrayKind::open_group, DType::fp32, begin}).data
                             : train_.arrays.group_block(),
                       count};
    if (route.folds_twice()) {
      folded.summands = {route.summands.groups(), route.summands.first / route.summands.group};
      folded.received.data = group_sums(route, *hops, begin, count, stream);
    } else {
      folded.received.data = summands(route, hops, begin, count, stream);
    }
    fold(folded, stream);
  }
  if (route.whole)
    all_gather(train_, *hops, stream, {to.data, route.count, to.dtype},
               at(route, *route.whole).data);
}

// The sum of a group is rounded in the memory of the last summand.
void Transfers::fold(const FoldedPiece& piece, Stream stream) const {
  const bool keeps = train_.policy().keeps_open_group();
  const std::int64_t block = train_.policy().fold_block(piece.count);
  const auto element = [](const Typed& array, std::int64_t number) {
    return Typed{array.data + number * size_of(array.dtype), array.dtype};
  };
  for (std::int64_t first = 0; first < piece.count; first += block) {
    const std::int64_t count = std::min(block, piece.count - first);
    const Typed open = element({piece.open, DType::fp32}, keeps ? first : 0);
    for (int s = 0; s < piece.summands.count; ++s) {
      const Typed summand = element(piece.received, s * piece.count + first);
      if (piece.summands.group > 1) {
        assign_or_add(open, summand, count, piece.summands.begins_group(s), stream);
        if (!piece.summands.ends_group(s)) continue;
        cast(open, summand, count, stream);
      }
      assign_or_add(element(piece.to, first), summand, count, piece.summands.in_first_group(s),
                    stream);
    }
  }
}

std::byte* Transfers::summands(const Route& route, const Hops* hops, std::int64_t begin,
                               std::int64_t count, Stream stream) {
  if (hops == nullptr) return cast_for_wire(route, begin, count, stream).data;
  const bool sends = hops->rank() < route.summands.count;
  const std::byte* sent = sends ? cast_for_wire(route, begin, count, stream).data : nullptr;
  std::byte* received = train_.arrays.received_summands();
  hops->first.all_to_all(sent, received,
                         comm::PairCounts::from_first(route.summands.count, route.parts(), count),
                         route.wire, stream);
  return received;
}

// Inside a group, each rank receives the slices of the ranks of equal number in all groups. The
// slices for one group are adjacent, so each of these groups is a call.
std::byte* Transfers::group_sums(const Route& route, const Hops& hops, std::int64_t begin,
                                 std::int64_t count, Stream stream) {
  const int ranks = route.legs[0].ranks, groups = route.legs[1].ranks;
  const int own = std::clamp(route.summands.count - hops.second->rank() * ranks, 0, ranks);
  const bool sends = hops.first.rank() < own;
  std::byte* const sent = sends ? cast_for_wire(route, begin, count, stream).data : nullptr;
  std::byte* const received = train_.arrays.received_summands();
  std::byte* const sums = train_.arrays.staging();
  const std::int64_t slice = count * size_of(route.wire);
  if (own > 0) {
    for (int group = 0; group < groups; ++group)
      hops.first.all_to_all(sends ? sent + group * ranks * slice : nullptr,
                            received + group * ranks * slice,
                            comm::PairCounts::from_first(own, ranks, count), route.wire, stream);
    for (int group = 0; group < groups; ++group)
      fold({{own, 0, ranks, true},
            {received + group * ranks * slice, route.wire},
            {sums + group * slice, route.wire},
            train_.arrays.group_block(),
            count},
           stream);
  }
  hops.second->all_to_all(own > 0 ? sums : nullptr, received,
                          comm::PairCounts::from_first(route.summands.groups(), groups, count),
                          route.wire, stream);
  return received;
}

// `all`: the communicators of the route's work, for the gather of the whole result.
void Transfers::sum(const Route& route, const Hops& hops, const Hops& all, Stream stream) {
  const DType wire = route.wire;
  const Typed to = at(route, route.to);
  std::byte* const whole = route.whole ? at(route, *route.whole).data : nullptr;
  // A sum that is replaced has values of the wire dtype, and is also sent in that dtype.
  const bool spreads_wire =
      whole != nullptr && route.replaces && to.dtype != wire && all.ranks() == hops.ranks();
  const comm::wire::Workspace workspace{train_.runtime.codec(), train_.arrays.wire_staging(),
                                        stream, errors_of(route.id.flat_unit)};
  const std::int64_t part = route.count, piece = train_.policy().reduce_piece(hops.ranks());
  for (std::int64_t begin = 0; begin < part; begin += piece) {
    const std::int64_t count = std::min(piece, part - begin);
    const Outgoing outgoing = cast_for_wire(route, begin, count, stream);
    const auto part_of = [&, size = size_of(wire)](int rank) {
      return outgoing.data + rank * outgoing.stride * size;
    };
    std::byte* own = part_of(hops.rank());
    std::byte* target = to.data + begin * size_of(to.dtype);
    const bool direct = route.replaces && to.dtype == wire;
    const comm::wire::Sum result{direct ? target : own, wire};
    const comm::wire::Hop inner{hops.first, route.legs.front().codec};
    if (hops.second == nullptr) {
      comm::wire::reduce_scatter(inner, outgoing.data, result, {count, outgoing.stride, wire},
                                 workspace);
    } else {
      comm::wire::reduce_scatter(
          inner, {*hops.second, route.legs.back().codec}, outgoing.data, result,
          {count, outgoing.stride, hops.first.size() * outgoing.stride, wire}, workspace);
    }
    if (!direct) assign_or_add({target, to.dtype}, {own, wire}, count, route.replaces, stream);
    if (!spreads_wire) continue;
    all_gather(train_, all, stream, {own, count, wire, outgoing.stride}, outgoing.data);
    for (int r = 0; r < all.ranks(); ++r)
      cast({part_of(r), wire}, {whole + (r * part + begin) * size_of(to.dtype), to.dtype}, count,
           stream);
  }
  if (whole != nullptr && !spreads_wire)
    all_gather(train_, all, stream, {to.data, part, to.dtype}, whole);
}

Transfers::Outgoing Transfers::cast_for_wire(const Route& route, std::int64_t begin,
                                             std::int64_t count, Stream stream) {
  const auto& [data, dtype] = at(route, route.from);
  const DType wire = route.wire;
  std::byte* piece = data + begin * size_of(dtype);
  Outgoing outgoing{piece, route.count};
  const bool moves = dtype != wire || route.packs(count);
  if (moves) outgoing = {train_.arrays.staging(), count};
  for (int r = 0; r < route.parts(); ++r) {
    std::byte* part = outgoing.data + r * outgoing.stride * size_of(wire);
    if (moves) cast({piece + r * route.count * size_of(dtype), dtype}, {part, wire}, count, stream);
    if (route.divisor != 1)
      train_.runtime.kernels().divide(part, wire, count, route.divisor, stream);
  }
  return outgoing;
}

}  // namespace zero::detail
