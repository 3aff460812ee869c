#include "comm/wire/exchange.h"

#include <algorithm>
#include <string>

#include "comm/bytes.h"
#include "comm/wire/layout.h"
#include "zero/base/error.h"

namespace zero::comm::wire {
namespace {

bool is_plain(const Codec& codec) {
  return codec.format == Format::none;
}

// Encoded vectors are sent as integers, because no transport changes these.
constexpr DType word = DType::int64;

std::int64_t words(std::int64_t bytes) {
  return bytes / size_of(word);
}

// Encodes the elements as slice number `slice` of `sent`.
void encode_slice(const Hop& hop, const Elements& elements, std::int64_t slice, std::byte* sent,
                  const Workspace& workspace) {
  const std::int64_t bytes = encoded_bytes(hop.codec, elements.count, elements.dtype);
  Elements from = elements;
  from.errors = workspace.errors;
  workspace.codec.encode(hop.codec, from, sent + slice * bytes, workspace.stream);
}

void check_plain_sum(const Sum& sum, DType dtype) {
  if (sum.dtype != dtype)
    throw UsageError(std::string("a reduction in the format none gives sums in ") + name_of(dtype) +
                     ", the dtype of its summands, not in " + name_of(sum.dtype));
}

}  // namespace

std::int64_t gather_staging_bytes(const Codec& codec, const Cut& cut, int ranks) {
  return is_plain(codec) ? 0 : ranks * encoded_bytes(codec, cut.count, cut.dtype);
}

void all_gather(Communicator& communicator, const Codec& codec, const void* slice, void* whole,
                const Cut& cut, const Workspace& workspace) {
  if (is_plain(codec))
    return communicator.all_gather(slice, whole, cut.count, cut.dtype, cut.stride,
                                   workspace.stream);
  const std::int64_t bytes = encoded_bytes(codec, cut.count, cut.dtype);
  std::byte* own = workspace.staging + communicator.rank() * bytes;
  workspace.codec.encode(codec, {slice, cut.dtype, cut.count, workspace.errors}, own,
                         workspace.stream);
  communicator.all_gather(own, workspace.staging, words(bytes), word, 0, workspace.stream);
  for (int r = 0; r < communicator.size(); ++r)
    workspace.codec.decode(codec, workspace.staging + r * bytes, cut.count,
                           at(whole, r * cut.stride * size_of(cut.dtype)), cut.dtype,
                           workspace.stream);
}

void all_gather(const Hop& inner, const Hop& outer, const void* slice, void* whole,
                const Grid& grid, const Workspace& workspace) {
  const std::int64_t width = size_of(grid.dtype);
  void* own = at(whole, inner.communicator.rank() * grid.inner_stride * width);
  all_gather(outer.communicator, outer.codec, slice, own,
             {grid.count, grid.outer_stride, grid.dtype}, workspace);
  for (int q = 0; q < outer.communicator.size(); ++q)
    all_gather(inner.communicator, inner.codec, at(own, q * grid.outer_stride * width),
               at(whole, q * grid.outer_stride * width),
               {grid.count, grid.inner_stride, grid.dtype}, workspace);
}

std::int64_t reduce_staging_bytes(const Codec& codec, const Cut& cut, int ranks) {
  return 2 * gather_staging_bytes(codec, cut, ranks);
}

void reduce_scatter(const Hop& hop, const void* summands, const Sum& sum, const Cut& cut,
                    const Workspace& workspace) {
  Communicator& communicator = hop.communicator;
  if (is_plain(hop.codec)) {
    check_plain_sum(sum, cut.dtype);
    return communicator.reduce_scatter(summands, sum.data, cut.count, cut.dtype, cut.stride,
                                       workspace.stream);
  }
  const std::int64_t bytes = encoded_bytes(hop.codec, cut.count, cut.dtype);
  std::byte* received = workspace.staging + communicator.size() * bytes;
  for (int r = 0; r < communicator.size(); ++r)
    encode_slice(hop, {at(summands, r * cut.stride * size_of(cut.dtype)), cut.dtype, cut.count}, r,
                 workspace.staging, workspace);
  communicator.all_to_all(workspace.staging, received, words(bytes), word, workspace.stream);
  workspace.codec.decode_sum(hop.codec, {received, bytes, communicator.size()},
                             communicator.reduce_groups(), cut.count, sum.data, sum.dtype,
                             workspace.stream);
}

namespace {

// A reduction in two hops, both over several ranks.
class TwoHops {
 public:
  TwoHops(const Codec& inner, const Codec& outer, const Grid& grid, int inner_ranks,
          int outer_ranks)
      : inner_(inner),
        outer_(outer),
        grid_(grid),
        inner_ranks_(inner_ranks),
        outer_ranks_(outer_ranks) {}

  // Layout: the sums between the hops, then the data that the first hop receives, then the data
  // that it sends. Both vectors of the second hop overwrite the latter.
  std::int64_t staging_bytes() const {
    const std::int64_t second = 2 * outer_ranks_ * outer_bytes();
    return partial_bytes() + first_bytes() + std::max(first_bytes(), second);
  }

  void run(const Hop& inner, const Hop& outer, const void* summands, const Sum& sum,
           const Workspace& workspace) const {
    std::byte* received = workspace.staging + partial_bytes();
    std::byte* sent = received + first_bytes();
    if (!is_plain(inner_)) send_first(inner, summands, sent, received, workspace);
    for (int q = 0; q < outer_ranks_; ++q) {
      std::byte* partial = workspace.staging;
      if (is_plain(outer_)) partial += q * grid_.count * size_of(grid_.dtype);
      sum_first(inner, q, summands, received, partial, workspace);
      if (!is_plain(outer_))
        encode_slice(outer, {partial, grid_.dtype, grid_.count}, q, sent, workspace);
    }
    if (is_plain(outer_)) {
      check_plain_sum(sum, grid_.dtype);
      return outer.communicator.reduce_scatter(workspace.staging, sum.data, grid_.count,
                                               grid_.dtype, 0, workspace.stream);
    }
    std::byte* exchanged = sent + outer_ranks_ * outer_bytes();
    outer.communicator.all_to_all(sent, exchanged, words(outer_bytes()), word, workspace.stream);
    workspace.codec.decode_sum(outer_, {exchanged, outer_bytes(), outer_ranks_},
                               outer.communicator.reduce_groups(), grid_.count, sum.data, sum.dtype,
                               workspace.stream);
  }

 private:
  std::int64_t inner_bytes() const { return encoded_bytes(inner_, grid_.count, grid_.dtype); }
  std::int64_t outer_bytes() const {
    return is_plain(outer_) ? 0 : encoded_bytes(outer_, grid_.count, grid_.dtype);
  }
  std::int64_t first_bytes() const {
    return is_plain(inner_) ? 0 : inner_ranks_ * outer_ranks_ * inner_bytes();
  }
  std::int64_t partial_bytes() const {
    return filled((is_plain(outer_) ? outer_ranks_ : 1) * grid_.count * size_of(grid_.dtype));
  }
  const void* slice(const void* summands, std::int64_t inner, std::int64_t outer) const {
    const std::int64_t first = inner * grid_.inner_stride + outer * grid_.outer_stride;
    return at(summands, first * size_of(grid_.dtype));
  }

  void send_first(const Hop& inner, const void* summands, std::byte* sent, std::byte* received,
                  const Workspace& workspace) const {
    for (int s = 0; s < inner_ranks_; ++s)
      for (int q = 0; q < outer_ranks_; ++q)
        encode_slice(inner, {slice(summands, s, q), grid_.dtype, grid_.count}, s * outer_ranks_ + q,
                     sent, workspace);
    inner.communicator.all_to_all(sent, received, outer_ranks_ * words(inner_bytes()), word,
                                  workspace.stream);
  }

  // Computes the sum that this rank sends to rank q of the outer group.
  void sum_first(const Hop& inner, int q, const void* summands, const std::byte* received,
                 std::byte* partial, const Workspace& workspace) const {
    if (is_plain(inner_))
      return inner.communicator.reduce_scatter(slice(summands, 0, q), partial, grid_.count,
                                               grid_.dtype, grid_.inner_stride, workspace.stream);
    workspace.codec.decode_sum(
        inner_, {received + q * inner_bytes(), outer_ranks_ * inner_bytes(), inner_ranks_},
        inner.communicator.reduce_groups(), grid_.count, partial, grid_.dtype, workspace.stream);
  }

  const Codec& inner_;
  const Codec& outer_;
  const Grid& grid_;
  int inner_ranks_, outer_ranks_;
};

Cut inner_cut(const Grid& grid) {
  return {grid.count, grid.inner_stride, grid.dtype};
}
Cut outer_cut(const Grid& grid) {
  return {grid.count, grid.outer_stride, grid.dtype};
}

}  // namespace

std::int64_t two_hop_staging_bytes(const Codec& inner, const Codec& outer, const Grid& grid,
                                   int inner_ranks, int outer_ranks) {
  if (outer_ranks == 1) return reduce_staging_bytes(inner, inner_cut(grid), inner_ranks);
  if (inner_ranks == 1) return reduce_staging_bytes(outer, outer_cut(grid), outer_ranks);
  return TwoHops(inner, outer, grid, inner_ranks, outer_ranks).staging_bytes();
}

void reduce_scatter(const Hop& inner, const Hop& outer, const void* summands, const Sum& sum,
                    const Grid& grid, const Workspace& workspace) {
  const int inner_ranks = inner.communicator.size(), outer_ranks = outer.communicator.size();
  if (outer_ranks == 1) return reduce_scatter(inner, summands, sum, inner_cut(grid), workspace);
  if (inner_ranks == 1) return reduce_scatter(outer, summands, sum, outer_cut(grid), workspace);
  TwoHops(inner.codec, outer.codec, grid, inner_ranks, outer_ranks)
      .run(inner, outer, summands, sum, workspace);
}

}  // namespace zero::comm::wire
