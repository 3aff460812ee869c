// Gathers and reductions that send encoded vectors over any communicator.
//
// A rank's own slice and its own summand pass through the format too, so that all ranks get the
// same values. `none` makes the communicator's own calls, bitwise identical and with the same
// bytes. The communicator counts the bytes sent: for slices of `count` elements that are encoded in
// E bytes, a gather or a reduction sends (ranks - 1) * E; in two hops it sends (L - 1) * M *
// E_inner + (M - 1) * E_outer, for L ranks in the inner group and M in the outer group.
//
// Nothing is allocated: the caller provides 16-byte aligned staging memory of the same kind as the
// communicator's buffers; the *_staging_bytes() functions return the size. Threads, streams and
// errors are as for the communicator's own calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/communicator.h"
#include "comm/wire/codec.h"
#include "comm/wire/device_codec.h"

namespace zero::comm::wire {

// The codec of the device that holds the buffers, and memory for encoded vectors.
struct Workspace {
  const DeviceCodec& codec;
  std::byte* staging;
  Stream stream = {};
  ErrorTarget errors = {};  // receives the errors of all encodings
};

// Cut of a vector: each rank owns `count` elements, and these slices start `stride` elements apart.
struct Cut {
  std::int64_t count;
  std::int64_t stride;
  DType dtype;
};

// Layout of slices for ranks on two axes: the slice of rank s of the inner group and rank q of the
// outer group starts at s * inner_stride + q * outer_stride.
struct Grid {
  std::int64_t count;
  std::int64_t inner_stride, outer_stride;
  DType dtype;
};

// Ranks and format of a hop.
struct Hop {
  Communicator& communicator;
  Codec codec;
};

std::int64_t gather_staging_bytes(const Codec& codec, const Cut& cut, int ranks);
// Gathers this rank's slice, encoded, to the whole on every rank. `slice` may be a view into
// `whole`. The staging then contains all encoded slices in rank order, encoded_bytes() apart.
void all_gather(Communicator& communicator, const Codec& codec, const void* slice, void* whole,
                const Cut& cut, const Workspace& workspace);

// Gathers in two steps: between the ranks with the same number in an inner group, and then inside
// these groups. Every slice passes through both formats.
void all_gather(const Hop& inner, const Hop& outer, const void* slice, void* whole,
                const Grid& grid, const Workspace& workspace);

struct Sum {
  void* data;
  DType dtype;
};

std::int64_t reduce_staging_bytes(const Codec& codec, const Cut& cut, int ranks);
// sum = this rank's slice of the sum of all ranks' vectors, by a single all-to-all: decoded and
// summed in fp32, in rank order inside the communicator's reduce groups and then over the groups
// (as in decode_sum()), and rounded once, to the dtype of the sum. With `none` that is the dtype of
// the summands.
void reduce_scatter(const Hop& hop, const void* summands, const Sum& sum, const Cut& cut,
                    const Workspace& workspace);

std::int64_t two_hop_staging_bytes(const Codec& inner, const Codec& outer, const Grid& grid,
                                   int inner_ranks, int outer_ranks);
// Reduces over two groups (qgZ of ZeRO++): all-to-all and sum inside the inner group, then the
// sums, encoded once more, over the outer group, whose members have the same rank in an inner
// group. Sums between the hops are rounded to the dtype of the summands, so that a call for each
// group, with the sums kept in between, gives bitwise identical results. A group of one rank makes
// no hop, and ignores the format (if both groups have one rank, the inner group makes a hop).
void reduce_scatter(const Hop& inner, const Hop& outer, const void* summands, const Sum& sum,
                    const Grid& grid, const Workspace& workspace);

}  // namespace zero::comm::wire
