#include "zero/step/replica_check.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "zero/pass/array_digest.h"
#include "zero/runtime/fingerprint.h"

namespace zero::detail {

namespace {

// Returns the digests by flat unit.
std::vector<std::int64_t> own_digests(TrainState& train) {
  std::vector<std::int64_t> digests;
  for (int f = 0; f < std::ssize(train.layout().flat_units); ++f) {
    const std::uint64_t digest =
        digest_of_segments(train, train.layout().segments_of(f), ArrayKind::parameter);
    digests.push_back(std::bit_cast<std::int64_t>(digest));
  }
  return digests;
}

// "rank 2 differs from the other 3", or, without a majority, each digest with the ranks.
std::string culprits(const char* noun, const std::vector<std::int64_t>& digests) {
  for (const std::int64_t most : digests) {
    if (2 * std::ranges::count(digests, most) <= std::ssize(digests)) continue;
    std::vector<std::size_t> others;
    for (std::size_t rank = 0; rank < digests.size(); ++rank)
      if (digests[rank] != most) others.push_back(rank);
    return list_of_ranks(noun, others) + (others.size() > 1 ? " differ" : " differs") +
           " from the other " + std::to_string(digests.size() - others.size());
  }
  std::vector<std::string> texts;
  for (const std::int64_t digest : digests)
    texts.push_back(text_of_hash(std::bit_cast<std::uint64_t>(digest)));
  return who_has_what(noun, texts) + " (a digest), and no value is that of most ranks";
}

}  // namespace

void verify_replicas(TrainState& train, const std::string& when) {
  // Return if there are no copies to compare.
  if (!train.collective() || !train.keeps_parameters() || !train.runtime.device().is_host()) return;
  const std::vector<std::int64_t> own = own_digests(train);
  const std::vector<std::int64_t> all =
      train.ranks.gather_words("the comparison of replicas " + when, own);
  for (std::size_t f = 0; f < own.size(); ++f) {
    std::vector<std::int64_t> digests;
    for (std::size_t at = f; at < all.size(); at += own.size()) digests.push_back(all[at]);
    if (std::ranges::all_of(digests, [&](std::int64_t d) { return d == digests[0]; })) continue;
    throw NumericError(when + " the parameters of " + train.subject(static_cast<int>(f)) +
                       " are not the same on all ranks, though each rank holds all of them: " +
                       culprits(train.ranks.noun(), digests) +
                       "; a kernel wrote out of bounds, or the memory of that host is faulty: "
                       "nothing was saved, resume from the last checkpoint");
  }
}

}  // namespace zero::detail
