#include "tools/report/verdict.h"

#include "tools/report/number.h"

namespace zero::report {
namespace {

std::string names_of(const std::vector<Variant>& variants, bool ran) {
  std::string names;
  for (const Variant& variant : variants)
    if (variant.ran == ran) names += (names.empty() ? "" : ", ") + variant.name;
  return names;
}

std::string encodings_of(const Variant& variant) {
  return variant.encodings.empty() ? "nothing" : variant.encodings;
}

// Says why a run's bits may differ from the reference's.
std::string difference(const Variant& reference, const Variant& other) {
  if (other.data_ranks != reference.data_ranks)
    return " sums over " + std::to_string(other.data_ranks) + " data rank" +
           (other.data_ranks == 1 ? "" : "s") + ", and " + reference.name + " over " +
           std::to_string(reference.data_ranks);
  if (reference.encodings.empty()) return " sends less in wire formats";
  return " encodes " + encodings_of(other) + ", and " + reference.name + " " +
         encodings_of(reference);
}

// Compares the last loss of a run that sums otherwise with the reference's.
std::string loss_sentence(const Variant& reference, const Variant& encoded) {
  const std::string begin =
      encoded.name + difference(reference, encoded) + ", so its bits may differ";
  if (reference.encoded || reference.steps.empty() || encoded.steps.empty()) return begin + ".";
  const double expected = reference.steps.back().loss, loss = encoded.steps.back().loss;
  const double percents = 100 * (loss - expected) / expected;
  return begin + ": final loss " + fixed(loss, 6) + " against " + fixed(expected, 6) + " of " +
         reference.name + " (" + (percents >= 0 ? "+" : "") + fixed(percents, 2) + " %).";
}

// Adds the first difference of each run from its peer, or the evidence that all are bitwise
// identical.
void add_bits(const std::vector<Variant>& runs, std::vector<std::string>& sentences) {
  const Variant& reference = reference_of(runs);
  const std::size_t before = sentences.size();
  std::size_t plain = 0;
  for (const Variant& variant : runs) {
    if (!sums_otherwise(runs, variant)) ++plain;
    const Variant& peer = peer_of(runs, variant);
    if (const std::string found = first_difference(peer, variant); !found.empty())
      sentences.push_back(variant.name + " differs from " + peer.name + " at " + found + ".");
  }
  if (sentences.size() == before && plain > 1)
    sentences.push_back("Bits equal: all " + std::to_string(reference.steps.size()) +
                        " losses and gradient norms, and the digest of weights and moments, " +
                        hexadecimal(reference.digest) + ".");
  for (const Variant& variant : runs)
    if (sums_otherwise(runs, variant)) sentences.push_back(loss_sentence(reference, variant));
}

void add_absent(const Comparison& comparison, const std::vector<Variant>& runs,
                std::vector<std::string>& sentences) {
  sentences.push_back(runs.empty()
                          ? "Nothing ran to its end."
                          : "Incomplete: only " + names_of(runs, true) + " ran to the end.");
  for (const Absent& absent : comparison.absent)
    sentences.push_back(absent.name + ": " + absent.reason + ".");
}

}  // namespace

Verdict verdict_of(const Comparison& comparison) {
  const std::vector<Variant> runs = runs_of(comparison).variants;
  const std::size_t plans = comparison.variants.size() - runs.size();
  Verdict verdict;
  if (!comparison.absent.empty()) {
    verdict.kind = Verdict::Kind::incomplete;
    add_absent(comparison, runs, verdict.sentences);
  } else if (runs.empty()) {
    const bool predicted = !comparison.variants.empty() && comparison.variants.front().predicted;
    verdict.sentences.push_back(
        std::string("A plan, nothing ran: each rank holds this much from its start on. ") +
        (predicted ? "Activations and times are those of a model of the program and the machines. "
                     "Memory of saves and of libraries comes on top."
                   : "Memory that the program itself takes (activations), memory of saves and of "
                     "libraries comes on top."));
  } else if (runs.size() == 1) {
    verdict.kind = Verdict::Kind::single;
    verdict.sentences.push_back(runs.front().name +
                                " is the only run: there are no bits to compare.");
  } else {
    verdict.kind = bits_equal(comparison) ? Verdict::Kind::equal : Verdict::Kind::differs;
  }
  if (runs.size() > 1) add_bits(runs, verdict.sentences);
  if (plans > 0 && !runs.empty())
    verdict.sentences.push_back(
        names_of(comparison.variants, false) +
        (plans == 1 ? " is a plan: it has no bits." : " are plans: they have no bits."));
  return verdict;
}

}  // namespace zero::report
