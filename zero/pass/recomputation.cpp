#include "zero/pass/recomputation.h"

#include <algorithm>
#include <bit>
#include <set>

#include "zero/base/error.h"
#include "zero/base/hash.h"
#include "zero/base/run_marks.h"
#include "zero/base/text.h"
#include "zero/pass/array_digest.h"

namespace zero::detail {

bool Computation::agrees_with(const Computation& other) const {
  return std::ranges::equal(words, other.words);
}

std::vector<int> suspects_among(const std::vector<Computation>& computations) {
  const auto equals = [&](const Computation& result) {
    return std::ranges::count_if(
        computations, [&](const Computation& other) { return other.agrees_with(result); });
  };
  const Computation& common = *std::ranges::max_element(computations, {}, equals);
  const bool alone = std::ranges::none_of(computations, [&](const Computation& other) {
    return !other.agrees_with(common) && equals(other) == equals(common);
  });
  std::set<int> suspects;
  for (const Computation& each : computations)
    if (!alone || !each.agrees_with(common)) suspects.insert(each.rank);
  return {suspects.begin(), suspects.end()};
}

int Recomputation::checked_micro_step(int rank, std::int64_t step) const {
  return static_cast<int>((step + 1) / every() % own_micro_steps(rank));
}

std::int64_t Recomputation::checked_number(int rank, std::int64_t step) const {
  return std::int64_t{checked_micro_step(rank, step)} * ranks() + rank;
}

std::int64_t Recomputation::number(int micro_step, std::int64_t step) const {
  const int round = micro_step - own_micro_steps(train_.rank()) + 1;
  if (round <= 0 || !due(step)) return std::int64_t{micro_step} * ranks() + train_.rank();
  return checked_number(owner(train_.rank(), round), step);
}

std::vector<std::int64_t> Recomputation::micro_batches(std::int64_t step) const {
  const int repeats = due(step) ? sure_rounds() - 1 : 0;
  std::vector<std::int64_t> numbers;
  for (int m = 0; m < own_micro_steps(train_.rank()) + repeats; ++m)
    numbers.push_back(number(m, step));
  return numbers;
}

void Recomputation::begin_step() {
  rounds_.clear();
  open_ = settled_ = differ_ = false;
}

void Recomputation::begin_own(int micro_step) {
  if (due() && micro_step == checked_micro_step(train_.rank(), train_.step)) begin_round();
}

void Recomputation::begin_round() {
  rounds_.emplace_back();
  open_ = true;
}

void Recomputation::note_loss(double mean) {
  if (!open_) return;
  std::uint64_t& digest = rounds_.back().loss;
  digest = mixed(digest + 1) ^ std::bit_cast<std::uint64_t>(mean);
}

void Recomputation::note_loss(const float* mean) {
  if (!open_) return;
  float value = 0;
  copy_and_wait(train_.runtime, &value, mean, sizeof value);
  note_loss(value);
}

void Recomputation::note_gradient(int flat_unit) {
  if (!open_) return;
  const std::uint64_t digest =
      digest_of_segments(train_, train_.layout().trainable_of(flat_unit), ArrayKind::gradient);
  rounds_.back().flat_units.push_back(flat_unit);
  rounds_.back().digests.push_back(std::bit_cast<std::int64_t>(digest));
}

bool Recomputation::goes_on() {
  if (settled_ || !due()) return false;
  if (rounds_done() < sure_rounds()) return true;
  if (!differ_) {
    differ_ = !all_agree();
    settled_ = !differ_;
  }
  if (differ_ && rounds_done() == all_rounds()) report();
  return differ_;
}

std::vector<std::int64_t> Recomputation::gather(const std::vector<std::int64_t>& own) const {
  return train_.ranks.gather_words(
      "the comparison of repeated micro batches in step " + std::to_string(train_.step + 1), own);
}

std::vector<std::vector<Computation>> Recomputation::by_owner(
    std::span<const std::int64_t> all) const {
  const std::size_t words = all.size() / static_cast<std::size_t>(ranks() * rounds_done());
  std::vector<std::vector<Computation>> groups(static_cast<std::size_t>(ranks()));
  for (int rank = 0; rank < ranks(); ++rank)
    for (int round = 0; round < rounds_done(); ++round) {
      groups[owner(rank, round)].push_back({rank, all.first(words)});
      all = all.subspan(words);
    }
  return groups;
}

bool Recomputation::all_agree() const {
  std::vector<std::int64_t> own;
  for (const Round& round : rounds_) {
    std::uint64_t digest = round.loss;
    for (const std::int64_t each : round.digests)
      digest = mixed(digest + 1) ^ std::bit_cast<std::uint64_t>(each);
    own.push_back(std::bit_cast<std::int64_t>(digest));
  }
  const std::vector<std::int64_t> all = gather(own);
  return std::ranges::all_of(by_owner(all), [](const std::vector<Computation>& group) {
    return std::ranges::all_of(group,
                               [&](const Computation& each) { return each.agrees_with(group[0]); });
  });
}

std::vector<Recomputation::Difference> Recomputation::find_differences() const {
  std::vector<std::int64_t> own;
  for (const Round& round : rounds_) {
    own.push_back(std::bit_cast<std::int64_t>(round.loss));
    own.insert(own.end(), round.digests.begin(), round.digests.end());
  }
  const std::vector<std::int64_t> all = gather(own);
  std::vector<Difference> differences;
  const std::vector<std::vector<Computation>> groups = by_owner(all);
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::vector<Computation>& group = groups[rank];
    std::size_t first = group[0].words.size();
    for (const Computation& each : group)
      for (std::size_t w = 0; w < first; ++w)
        if (each.words[w] != group[0].words[w]) first = w;
    if (first == group[0].words.size()) continue;
    const std::string place =
        first == 0 ? "the loss"
                   : "the gradient of " + train_.subject(rounds_[0].flat_units[first - 1]);
    differences.push_back({rank, suspects_among(group), place});
  }
  return differences;
}

std::string Recomputation::message(const Difference& difference,
                                   const std::vector<int>& suspects) const {
  const std::vector<std::string> hosts =
      train_.ranks.gather_texts("the names of hosts", host_name());
  std::vector<std::string> names;
  for (const int rank : suspects)
    names.push_back("rank " + std::to_string(rank) + " (host " + hosts[rank] + ")");
  const bool one = suspects.size() == 1;
  const std::string what = "micro batch " +
                           std::to_string(checked_number(difference.owner, train_.step)) +
                           " of step " + std::to_string(train_.step + 1);
  const std::string verdict =
      ranks() == 1 ? names[0] + " computed " + what + " twice, with different results"
      : one        ? names[0] + " computed " + what + " otherwise than other ranks did"
                   : list_of(names, 8) + " computed " + what +
                  " with different results, and none of them is that of most";
  return verdict + ", first in " + difference.place +
         "; the step was not applied, and nothing of it was saved. The CPU, GPU or memory of " +
         (one ? "that host is" : "one of these hosts is") +
         " suspect: " + (one ? "leave it out" : "test them") +
         ", and resume from the last checkpoint. If other ranks are named the next time, the "
         "program does not compute the same bits twice, which zero_core.recompute_every needs";
}

// The named rank, or the first of several, fails first, so that the job and `zero run` report its
// failure.
void Recomputation::report() const {
  const std::vector<Difference> differences = find_differences();
  std::set<int> ranks_named;
  for (const Difference& each : differences)
    ranks_named.insert(each.suspects.begin(), each.suspects.end());
  const std::vector<int> suspects(ranks_named.begin(), ranks_named.end());
  const std::string text = message(differences.at(0), suspects);
  if (suspects[0] != train_.rank())
    train_.ranks.gather_words("the end of rank " + std::to_string(suspects[0]), {0});
  if (suspects.size() == 1) mark("suspect", train_.rank());
  throw NumericError(text);
}

}  // namespace zero::detail
