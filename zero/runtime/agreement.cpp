#include "zero/runtime/agreement.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>

#include "zero/base/error.h"
#include "zero/base/hash.h"
#include "zero/base/number_text.h"
#include "zero/runtime/fingerprint.h"

namespace zero::detail {

namespace {

constexpr std::size_t message_words = 64;

// "its line, where the root has that line", or "" when the texts are equal.
std::string first_difference(const std::string& own, const std::string& root) {
  std::istringstream own_lines(own), root_lines(root);
  std::string own_line, root_line;
  while (true) {
    const bool has_own = static_cast<bool>(std::getline(own_lines, own_line));
    const bool has_root = static_cast<bool>(std::getline(root_lines, root_line));
    if (!has_own && !has_root) return "";
    if (!has_own) own_line = "nothing more";
    if (!has_root) root_line = "nothing more";
    if (own_line != root_line) return "\"" + own_line + "\" where rank 0 has \"" + root_line + "\"";
  }
}

struct Field {
  Agreed what;
  std::int64_t (*value)(const StepVote&);
};

// What must be equal on all ranks.
constexpr Field agreed_fields[] = {
    {Agreed::step, [](const StepVote& vote) { return vote.step; }},
    {Agreed::collectives,
     [](const StepVote& vote) { return std::bit_cast<std::int64_t>(vote.issued_hash); }},
    {Agreed::learning_rate,
     [](const StepVote& vote) { return std::bit_cast<std::int64_t>(vote.learning_rate); }},
    {Agreed::inspects, [](const StepVote& vote) { return std::int64_t{vote.inspects}; }},
    {Agreed::skip, [](const StepVote& vote) { return std::int64_t{vote.skip}; }},
};

const char* name_of(Agreed what) {
  switch (what) {
    case Agreed::step:
      return "step number";
    case Agreed::collectives:
      return "the collectives that they have issued (a hash)";
    case Agreed::learning_rate:
      return "learning rate";
    case Agreed::inspects:
      return "StepOptions::inspect";
    case Agreed::skip:
      return "the decision of StepOptions::inspect";
    case Agreed::applied_steps:
      return "count of applied steps";
  }
  return "?";
}

std::string text_of(Agreed what, std::int64_t value) {
  switch (what) {
    case Agreed::collectives:
      return text_of_hash(std::bit_cast<std::uint64_t>(value));
    case Agreed::learning_rate:
      return shortest_text(std::bit_cast<double>(value));
    case Agreed::inspects:
      return value != 0 ? "one" : "none";
    case Agreed::skip:
      return value != 0 ? "skip" : "apply";
    default:
      return std::to_string(value);
  }
}

std::vector<std::int64_t> packed(const StepVote& vote) {
  std::vector<std::int64_t> words;
  for (const Field& field : agreed_fields) words.push_back(field.value(vote));
  words.push_back(std::bit_cast<std::int64_t>(vote.loss));
  words.push_back(vote.stop_requested);
  words.push_back(vote.save_busy);
  words.push_back(vote.save_code);
  words.push_back(vote.bins.non_finite);
  words.insert(words.end(), vote.bins.limbs.begin(), vote.bins.limbs.end());
  return words;
}

}  // namespace

void raise(const char* noun, const Disagreement& found) {
  throw DisagreementError("before step " + std::to_string(found.step) + " ranks differ in " +
                          name_of(found.what) + ": " + noun + " 0 has " +
                          text_of(found.what, found.value_of_root) + ", " + noun + " " +
                          std::to_string(found.rank) + " has " + text_of(found.what, found.value) +
                          "; every rank must make the same calls with the same values");
}

namespace {

// The ranks whose text differs from the root's, with the first line that does; "" where none does.
std::string find_differences(Ranks& ranks, const std::string& subject, const std::string& text) {
  const std::vector<std::int64_t> hashes =
      ranks.gather_words(subject, {std::bit_cast<std::int64_t>(hash_of(text))});
  if (std::all_of(hashes.begin(), hashes.end(), [&](std::int64_t h) { return h == hashes[0]; }))
    return "";
  const std::string difference = first_difference(text, ranks.broadcast_text(subject, text));
  std::vector<std::int64_t> message(message_words, 0);
  std::memcpy(message.data(), difference.data(),
              std::min(difference.size(), message_words * 8 - 1));
  const std::vector<std::int64_t> messages = ranks.gather_words(subject, message);
  std::string report;
  int listed = 0;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
    const char* line = reinterpret_cast<const char*>(&messages[rank * message_words]);
    if (*line == '\0' || ++listed > 4) continue;
    report += std::string(" ") + ranks.noun() + " " + std::to_string(rank) + " has " + line + ";";
  }
  return report;
}

}  // namespace

void agree_on_text(Ranks& ranks, const std::string& what, const std::string& text,
                   const std::string& advice) {
  const std::string found = find_differences(ranks, "start-up agreement on the " + what, text);
  if (found.empty()) return;
  throw DisagreementError(ranks.noun() + ("s were given different " + what) + "s:" + found + " " +
                          (advice.empty() ? "start every rank with the same " + what : advice));
}

void agree_on_call(Ranks& ranks, const std::string& call) {
  const std::string found = find_differences(ranks, "agreement on the call of " + call, call);
  if (found.empty()) return;
  throw DisagreementError("ranks make different calls at one time:" + found +
                          " these calls are collective: every rank makes them, in the same order");
}

StepDecision agree_on_step(Ranks& ranks, const StepVote& own) {
  const std::vector<std::int64_t> mine = packed(own);
  const std::vector<std::int64_t> all =
      ranks.gather_words("agreement before step " + std::to_string(own.step), mine);
  const std::size_t count = all.size() / mine.size();
  StepDecision decision;
  decision.skip = own.skip;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const std::int64_t* words = &all[rank * mine.size()];
    for (const Field& field : agreed_fields) {
      const std::int64_t value = *words++, root = all[&field - agreed_fields];
      if (value != root)
        raise(ranks.noun(), {field.what, own.step, root, static_cast<int>(rank), value});
    }
    decision.loss += std::bit_cast<double>(*words++);
    decision.stop_requested |= *words++ != 0;
    decision.save_busy |= *words++ != 0;
    decision.save_failed |= *words++ != 0;
    optim::NormBins bins;
    bins.non_finite = *words++;
    std::copy_n(words, bins.limbs.size(), bins.limbs.begin());
    if (bins.non_finite > 0) decision.non_finite_ranks.push_back(static_cast<int>(rank));
    decision.bins.add(bins);
  }
  decision.loss /= static_cast<double>(count);
  return decision;
}

void agree_over_model(Ranks& model_parallel, const StepVote& own, StepDecision& decision) {
  StepVote vote = own;
  vote.issued_hash = 0;  // what ranks hold of the model, and hence exchange, may differ
  vote.bins = decision.bins;
  vote.stop_requested = decision.stop_requested;
  const StepDecision joint = agree_on_step(model_parallel, vote);
  decision.bins = joint.bins;
  decision.stop_requested = joint.stop_requested;
  // One rank of all names what is not finite.
  if (!joint.non_finite_ranks.empty() &&
      joint.non_finite_ranks.front() != model_parallel.topology().rank)
    decision.non_finite_ranks.clear();
}

}  // namespace zero::detail
