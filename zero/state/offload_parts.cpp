#include "zero/state/offload_parts.h"

#include <stdexcept>
#include <utility>

#include "offload/block_file.h"

namespace zero::detail {

namespace {

class PartList {
 public:
  PartList(const PlanInputs& inputs, const SegmentBuffers& own, const Chunk& chunk)
      : offload_(inputs.offload), own_(own), chunk_(chunk) {}

  std::vector<OffloadPart> make() {
    add_gradient();
    add_parameter();
    const Home home = home_of_state();
    // What the file keeps, or a GPU updates, has a place in the slot.
    const bool in_slot = !chunk_.on_host || home == Home::file;
    if (own_.has_master() && home != Home::device)
      add(ArrayKind::master, home, in_slot);
    else if (!own_.has_master() && offload_.uploads(chunk_) && home == Home::host)
      add(ArrayKind::master, home, false);
    for (int k = 0; k < std::ssize(own_.states) && home != Home::device; ++k)
      add(ArrayKind::state, home, in_slot, k);
    return std::move(parts_);
  }

 private:
  Home home_of_state() const {
    if (chunk_.state_in_file) return Home::file;
    return chunk_.on_host || chunk_.streamed ? Home::host : Home::device;
  }

  void add_gradient() {
    if (offload_.recalls(chunk_))
      add(ArrayKind::gradient, Home::file, true);
    else if (chunk_.on_host)
      add(ArrayKind::gradient, Home::host, false);
  }

  void add_parameter() {
    if (offload_.fetches(chunk_.flat_unit))
      add(ArrayKind::parameter, Home::file, true);
    else if (offload_.shard_slot(chunk_.flat_unit) >= 0 && home_of_state() != Home::device)
      add(ArrayKind::parameter, Home::host, chunk_.streamed);
    else if (offload_.uploads(chunk_))
      // One that is its own master is state: the file has a copy of it.
      add(ArrayKind::parameter,
          chunk_.state_in_file && !own_.has_master() ? Home::file : Home::device, true);
  }

  void add(ArrayKind kind, Home home, bool in_slot, int state = 0) {
    OffloadPart part{.array = {chunk_, kind, state},
                     .range = own_.range_of(chunk_),
                     .dtype = own_.dtype_of(kind),
                     .home = home,
                     .slot = chunk_.slot};
    if (in_slot) {
      part.slot_offset = slot_bytes_;
      slot_bytes_ += slot_bytes_of(offload_, part);
    }
    parts_.push_back(part);
  }

  const OffloadPlan& offload_;
  const SegmentBuffers& own_;
  const Chunk& chunk_;
  std::int64_t slot_bytes_ = 0;
  std::vector<OffloadPart> parts_;
};

}  // namespace

std::int64_t slot_bytes_of(const OffloadPlan& offload, const OffloadPart& part) {
  return offload.in_file ? offload::aligned(part.bytes()) : Arena::rounded(part.bytes());
}

std::vector<OffloadPart> parts_of_chunk(const PlanInputs& inputs, const ModelState& state,
                                        const Chunk& chunk) {
  return PartList(inputs, state.segment(chunk), chunk).make();
}

Route route_of(Op op) {
  static constexpr std::pair<Op, Route> routes[] = {
      {Op::fetch, {Location::home, Location::buffer}},
      {Op::supply, {Location::buffer, Location::device}},
      {Op::load, {Location::home, Location::slot}},
      {Op::recall, {Location::home, Location::slot}},
      {Op::store, {Location::slot, Location::home}},
      {Op::upload, {Location::slot, Location::device}},
      {Op::download, {Location::device, Location::buffer}},
      {Op::spill, {Location::buffer, Location::home}},
  };
  for (const auto& [moving, route] : routes)
    if (moving == op) return route;
  throw std::logic_error(std::string(name_of(op)) + " moves nothing");
}

// A parameter with master weights is rounded from them, and only written.
bool moves(Op op, const Chunk& chunk, const SegmentBuffers& own, const OffloadPart& part) {
  const ArrayKind kind = part.array.kind;
  switch (op) {
    case Op::load:
      if (kind == ArrayKind::gradient) return !chunk.ahead && part.returns();
      return part.returns() && (kind != ArrayKind::parameter || !own.has_master());
    case Op::store:
      return part.returns() && kind != ArrayKind::gradient;
    case Op::recall:
    case Op::spill:
      return kind == ArrayKind::gradient && part.home == Home::file;
    case Op::download:
      return kind == ArrayKind::gradient;
    default:
      return kind == ArrayKind::parameter;
  }
}

}  // namespace zero::detail
