// Collective operations on the arrays of a TrainState. Each assembles arrays from the slices that
// the ranks own. All except all_gather() and gather() wait. Called on the program's thread, between
// steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "zero/state/train_state.h"

namespace zero::detail {

// A rank's slice of an array that is divided evenly over the ranks of a group.
struct EvenSlice {
  const std::byte* data;
  std::int64_t count;  // elements
  DType dtype;
  std::int64_t stride = count;  // elements from a rank's slice to the next rank's
};
// The ranks of one communicator, or of two hops: rank r of the first and rank q of the second is
// rank r + q * first.size() of all.
struct Hops {
  comm::Communicator& first;
  comm::Communicator* second = nullptr;

  int ranks() const { return first.size() * (second ? second->size() : 1); }
  int rank() const { return first.rank() + (second ? second->rank() * first.size() : 0); }
};
// The formats in which an array is gathered, and the sums to which errors are added. A rank's own
// slice passes through the format too.
struct GatherFormats {
  comm::wire::Codec inside{comm::wire::Format::none}, between{comm::wire::Format::none};
  comm::wire::ErrorTarget errors = {};
};
// All-gathers every rank's slice to the whole on every rank of the group, in pieces of the bucket's
// size.
void all_gather(const TrainState& train, const Hops& hops, Stream stream, const EvenSlice& own,
                std::byte* whole, const GatherFormats& formats = {});
// All-gathers according to a route.
void gather(const TrainState& train, const Route& route, const Hops& hops, Stream stream,
            const comm::wire::ErrorTarget& errors = {});

// Updates all copies of parameters and master weights that the placement keeps, after the slices
// were filled.
void spread_parameters(TrainState& train, const SegmentId& id);
// Does the same for the states of the optimizer and of the program.
void spread_states(TrainState& train, const SegmentId& id);
// All-gathers an array that every rank stores whole and owns a slice of.
void spread_slices(TrainState& train, const SegmentId& id, std::byte* whole, DType dtype);
// Exchanges among replicas the slices of an array that each owns, through host memory; does nothing
// if no replica has a copy of the array.
void spread_to_replicas(TrainState& train, const ArrayId& array);

// Returns all of an array, in host memory.
std::vector<std::byte> gather_whole(TrainState& train, const ArrayId& array);

// Hashes this rank's elements of an array, or of a parameter in it: a sum, so that the order of
// pieces does not matter.
std::uint64_t digest_of(TrainState& train, const ArrayId& array, std::string_view kind,
                        int only_param = -1);
// Hashes parameter values over the elements of these ranks; 0 for parameters that are not wanted.
std::vector<std::uint64_t> value_digests(TrainState& train, Ranks& ranks,
                                         const std::function<bool(int param)>& wanted);
// Once after values were set: throws DisagreementError if parameters that are not split differ
// among the ranks of the tensor group.
void check_replicas(TrainState& train);

}  // namespace zero::detail
