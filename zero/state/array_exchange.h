// Collective operations on the arrays of a TrainState, each of which moves arrays out of the slices
// that the ranks own. All but all_gather() and gather() wait; the program's thread,
// between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "zero/state/train_state.h"

namespace zero::detail {

// One rank's part of an array that is divided evenly over the ranks of a group.
struct EvenPart {
  const std::byte* data;
  std::int64_t count;  // elements
  DType dtype;
  std::int64_t stride = count;  // from a rank's part to the next one's
};
// Whose parts are exchanged: those of the ranks of one communicator, or of two hops, where rank r
// of the first and rank q of the second is rank r + q * first.size() of all.
struct Hops {
  comm::Communicator& first;
  comm::Communicator* second = nullptr;

  int ranks() const { return first.size() * (second ? second->size() : 1); }
  int rank() const { return first.rank() + (second ? second->rank() * first.size() : 0); }
};
// The formats in which an array is gathered, and where their errors are added. A rank's
// own part passes through its format too.
struct GatherFormats {
  comm::wire::Codec inside{comm::wire::Format::none}, between{comm::wire::Format::none};
  comm::wire::ErrorTarget errors = {};
};
// Every rank's part to the whole on every rank of the group, in pieces of the bucket's size.
void all_gather(const TrainState& train, const Hops& hops, Stream stream, const EvenPart& own,
                std::byte* whole, const GatherFormats& formats = {});
// The same as a route says.
void gather(const TrainState& train, const Route& route, const Hops& hops, Stream stream,
            const comm::wire::ErrorTarget& errors = {});

// After the slices of parameters and master weights have been filled: to wherever the placement has
// copies of them.
void spread_parameters(TrainState& train, const SegmentId& id);
// The slices that the ranks own of an array that each of them has as a whole, to all of them.
void spread_slices(TrainState& train, const SegmentId& id, std::byte* whole, DType dtype);
// The slices that replicas own of one array, to all of them; through host memory.
void spread_to_replicas(TrainState& train, const ArrayId& array);

// All of an array, in host memory.
std::vector<std::byte> gather_whole(TrainState& train, const ArrayId& array);

// Over this rank's elements of an array, or of one parameter in it: a sum, so that the order of
// parts does not matter.
std::uint64_t digest_of(TrainState& train, const ArrayId& array, std::string_view kind,
                        int only_param = -1);
// Over all ranks' elements of the values of parameters; 0 for those that are not wanted.
std::vector<std::uint64_t> value_digests(TrainState& train,
                                         const std::function<bool(int param)>& wanted);
// Once after values were set: throws DisagreementError where parameters that are not split are not
// alike on all ranks of the model-parallel group.
void check_replicas(TrainState& train);

}  // namespace zero::detail
