// Number of elements that each rank of a group sends to each rank in an all-to-all. The table is
// equal on all ranks. Buffers are packed: a sender's by receiver, a receiver's by sender.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace zero::comm {

class PairCounts {
 public:
  // All counts are zero.
  explicit PairCounts(int ranks)
      : ranks_(ranks), counts_(ranks * static_cast<std::size_t>(ranks)) {}
  // All counts are the same.
  static PairCounts equal(int ranks, std::int64_t count) { return from_first(ranks, ranks, count); }
  // The first `senders` ranks send the same count to each rank, the remaining ranks nothing.
  static PairCounts from_first(int senders, int ranks, std::int64_t count) {
    PairCounts result(0);
    result.ranks_ = ranks;
    result.senders_ = senders;
    result.each_ = count;
    return result;
  }

  std::int64_t operator()(int from, int to) const {
    if (counts_.empty()) return from < senders_ ? each_ : 0;
    return counts_[index(from, to)];
  }
  void add(int from, int to, std::int64_t count) { counts_[index(from, to)] += count; }
  // Returns the counts of the exchange that sends everything back.
  PairCounts reversed() const {
    if (counts_.empty() && senders_ == ranks_) return *this;
    PairCounts result(ranks_);
    for (int from = 0; from < ranks_; ++from)
      for (int to = 0; to < ranks_; ++to) result.counts_[index(to, from)] = (*this)(from, to);
    return result;
  }

  // first_sent() is the start, in `from`'s buffer, of the elements for `to`; first_received() the
  // start, in `to`'s buffer, of the elements of `from`.
  std::int64_t first_sent(int from, int to) const {
    std::int64_t first = 0;
    for (int r = 0; r < to; ++r) first += (*this)(from, r);
    return first;
  }
  std::int64_t first_received(int from, int to) const {
    std::int64_t first = 0;
    for (int r = 0; r < from; ++r) first += (*this)(r, to);
    return first;
  }
  std::int64_t sent(int from) const { return first_sent(from, ranks_); }
  std::int64_t received(int to) const { return first_received(ranks_, to); }

  std::int64_t largest() const {
    return counts_.empty() ? each_ : *std::max_element(counts_.begin(), counts_.end());
  }
  std::int64_t least() const {
    return counts_.empty() ? each_ : *std::min_element(counts_.begin(), counts_.end());
  }
  // Summary that ranks compare before relying on each other's tables: the count, or the sum of all
  // counts.
  std::int64_t summary() const {
    if (counts_.empty()) return each_;
    std::int64_t total = 0;
    for (const std::int64_t count : counts_) total += count;
    return total;
  }
  int ranks() const { return ranks_; }

 private:
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) +
           static_cast<std::size_t>(to);
  }

  int ranks_;
  int senders_ = 0;
  std::int64_t each_ = 0;
  std::vector<std::int64_t> counts_;
};

}  // namespace zero::comm
