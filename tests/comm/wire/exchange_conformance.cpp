#include "tests/comm/wire/exchange_conformance.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>

#include "comm/bytes.h"
#include "comm/wire/exchange.h"
#include "comm/wire/layout.h"
#include "tests/comm/wire/vectors.h"

namespace zero::comm::wire::testing {
namespace {

constexpr std::int64_t gap = 8;  // elements between slices

using Floats = std::vector<float>;

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("wire exchange: " + what);
}

// Elements of a dtype, and their values.
struct Elements {
  Elements(const Floats& from, DType dtype)
      : bytes(optim::test::encode(from, dtype)), values(from.size()) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::fp32) values[i] = from[i];
      if (dtype == DType::bf16) values[i] = to_float(from_float<bf16>(from[i]));
      if (dtype == DType::fp16) values[i] = to_float(from_float<fp16>(from[i]));
    }
  }
  Bytes bytes;
  Floats values;
};

// The participating ranks, on two axes: rank = q * inner + s. The format and dtype of each
// exchange.
struct Case {
  Format formats[2];
  int inner, outer;
  int group = 1;
  DType dtype = DType::fp32, sum = DType::fp32;
  std::int64_t count = 0;
  std::int64_t block = 64;

  int ranks() const { return inner * outer; }
  Codec codec(int hop) const { return Codec(formats[hop], block); }
  // True if the slices of replicas are adjacent, false if those of a shard group are.
  bool replicas_together = false;
  std::int64_t step() const { return count + gap; }
  Grid grid() const {
    return {count, replicas_together ? outer * step() : step(),
            replicas_together ? step() : inner * step(), dtype};
  }
  std::int64_t begin(int s, int q) const {
    return s * grid().inner_stride + q * grid().outer_stride;
  }
  std::string text() const {
    return std::string(name_of(formats[0])) + " over " + std::to_string(inner) + ", " +
           name_of(formats[1]) + " over " + std::to_string(outer) + ", reduce group " +
           std::to_string(group) + ", " + std::to_string(count) + " " + name_of(dtype) + " to " +
           name_of(sum);
  }
};

// Returns the vector of a rank.
Elements vector_of(const Case& c, int rank) {
  const auto size = static_cast<std::size_t>(c.ranks() * c.step());
  return {random_floats(size, Numbers::usual, static_cast<unsigned>(rank)), c.dtype};
}

Floats slice(const Floats& whole, std::int64_t begin, std::int64_t count) {
  return {whole.begin() + begin, whole.begin() + begin + count};
}

void add(Floats& sum, const Floats& addend) {
  std::transform(sum.begin(), sum.end(), addend.begin(), sum.begin(), std::plus());
}

// Sums in order inside groups, then over the groups.
Floats summed(const std::vector<Floats>& summands, int group) {
  std::vector<Floats> partials;
  for (std::size_t r = 0; r < summands.size(); ++r)
    if (r % static_cast<std::size_t>(group) == 0)
      partials.push_back(summands[r]);
    else
      add(partials.back(), summands[r]);
  for (std::size_t g = 1; g < partials.size(); ++g) add(partials[0], partials[g]);
  return partials[0];
}

// Returns the values rounded to a dtype.
Floats rounded(const Floats& values, DType dtype) {
  return Elements(values, dtype).values;
}

// Returns the sum that rank (s, q) gets, by one hop or by two.
Floats sum_of(const Case& c, int own_s, int own_q) {
  std::vector<Floats> partials;
  for (int q = 0; q < c.outer; ++q) {
    std::vector<Floats> summands;
    for (int s = 0; s < c.inner; ++s) {
      const Floats all = vector_of(c, q * c.inner + s).values;
      summands.push_back(slice(all, c.begin(own_s, own_q), c.count));
      if (c.inner > 1 || c.outer == 1) summands.back() = through(c.codec(0), summands.back());
    }
    partials.push_back(summed(summands, std::min(c.group, c.inner)));
    if (c.inner > 1 && c.outer > 1) partials.back() = rounded(partials.back(), c.dtype);
    if (c.outer > 1) partials.back() = through(c.codec(1), partials.back());
  }
  return summed(partials, std::min(c.group, c.outer));
}

// A buffer of the requested size, with a mark after it.
class Marked {
 public:
  explicit Marked(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes) + 64, 0xab) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(bytes_.data()); }
  bool intact() const {
    return std::all_of(bytes_.end() - 64, bytes_.end(), [](unsigned char b) { return b == 0xab; });
  }

 private:
  Bytes bytes_;
};

std::int64_t bytes_sent(const Communicator& communicator) {
  const auto& sent = communicator.traffic().bytes_sent;
  return std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
}

// Returns the bytes that a hop sends for `slices` slices to each peer.
std::int64_t formula(const Codec& codec, const Case& c, DType dtype, int peers, int slices) {
  const std::int64_t slice = codec.format == Format::none ? c.count * size_of(dtype)
                                                          : encoded_bytes(codec, c.count, dtype);
  return peers * slices * slice;
}

void check_gather(Communicator& comm, const Case& c) {
  const Codec codec = c.codec(0);
  const Cut cut{c.count, c.step(), c.dtype};
  Marked staging(gather_staging_bytes(codec, cut, comm.size()));
  Bytes whole = vector_of(c, 99).bytes, expected = whole;
  const auto width = size_of(c.dtype);
  for (int r = 0; r < comm.size(); ++r) {
    const Elements own = vector_of(c, r);
    const Bytes there = encoded(codec, own.bytes, c.dtype, c.count);
    decode(codec, there.data(), c.count, expected.data() + r * c.step() * width, c.dtype);
  }
  const Elements own = vector_of(c, comm.rank());
  std::byte* slice = at(whole.data(), comm.rank() * c.step() * width);
  std::memcpy(slice, own.bytes.data(), static_cast<std::size_t>(c.count * width));
  const std::int64_t before = bytes_sent(comm);
  all_gather(comm, codec, slice, whole.data(), cut, {host_codec, staging.data()});
  require(whole == expected, "all_gather gives other values: " + c.text());
  require(staging.intact(), "all_gather exceeds its staging: " + c.text());
  require(bytes_sent(comm) - before == formula(codec, c, c.dtype, comm.size() - 1, 1),
          "all_gather sends other bytes: " + c.text());
}

void check_reduction(Communicator& inner, Communicator& outer, const Case& c) {
  const int s = inner.rank(), q = outer.rank();
  inner.set_reduce_groups(c.group);
  outer.set_reduce_groups(c.group);
  const Grid grid = c.grid();
  const Hop hops[] = {{inner, c.codec(0)}, {outer, c.codec(1)}};
  Marked staging(two_hop_staging_bytes(c.codec(0), c.codec(1), grid, c.inner, c.outer));
  const Elements own = vector_of(c, q * c.inner + s);
  Bytes sum(static_cast<std::size_t>(c.count * size_of(c.sum)));
  const std::int64_t before[] = {bytes_sent(inner), bytes_sent(outer)};
  reduce_scatter(hops[0], hops[1], own.bytes.data(), {sum.data(), c.sum}, grid,
                 {host_codec, staging.data()});
  require(sum == optim::test::encode(sum_of(c, s, q), c.sum), "another sum: " + c.text());
  require(staging.intact(), "the reduction exceeds its staging: " + c.text());
  require(bytes_sent(inner) - before[0] == formula(c.codec(0), c, c.dtype, c.inner - 1, c.outer) &&
              bytes_sent(outer) - before[1] == formula(c.codec(1), c, c.dtype, c.outer - 1, 1),
          "the reduction sends other bytes: " + c.text());
}

}  // namespace

void check_exchanges(Communicator& comm) {
  const int ranks = comm.size();
  for (const Format format : all_formats)
    for (const DType dtype : floating)
      for (const std::int64_t count : {0, 1, 64, 1001})
        check_gather(comm, {{format, format}, ranks, 1, 1, dtype, dtype, count});
  for (int inner = 1; inner <= ranks; ++inner) {
    if (ranks % inner != 0) continue;
    const auto in = comm.split(comm.rank() / inner, comm.rank());
    const auto out = comm.split(comm.rank() % inner, comm.rank());
    int number = 0;
    for (const Format first : all_formats)
      for (const Format second : all_formats) {
        const int groups[] = {1, 2, ranks};
        Case c{{first, second}, inner, ranks / inner, groups[number++ % 3]};
        c.count = 1001;
        c.replicas_together = number % 2 == 0;
        check_reduction(*in, *out, c);
        if (first == Format::none || second == Format::none) continue;
        c.dtype = DType::bf16;
        check_reduction(*in, *out, c);
        c.sum = DType::bf16;
        c.count = 5000;
        check_reduction(*in, *out, c);
      }
  }
}

}  // namespace zero::comm::wire::testing
