#include "zero/runtime/agreement.h"

#include <bit>
#include <sstream>

#include "zero/base/error.h"
#include "zero/base/hash.h"
#include "zero/base/number_text.h"
#include "zero/runtime/fingerprint.h"

namespace zero::detail {

namespace {

using optim::Differs;

constexpr std::size_t longest_line = 511;

// "OWN LINE where rank 0 has ROOT'S LINE", or "" if the texts are equal.
std::string first_difference(const std::string& own, const std::string& root) {
  std::istringstream own_lines(own), root_lines(root);
  std::string own_line, root_line;
  do {
    if (!std::getline(own_lines, own_line)) own_line = "nothing more";
    if (!std::getline(root_lines, root_line)) root_line = "nothing more";
    if (own_line != root_line) return "\"" + own_line + "\" where rank 0 has \"" + root_line + "\"";
  } while (own_lines || root_lines);
  return "";
}

const char* name_of(Differs what) {
  static constexpr const char* names[] = {"?",
                                          "step number",
                                          "the collectives that they have issued (a hash)",
                                          "learning rate",
                                          "StepOptions::inspect",
                                          "the decision of StepOptions::inspect",
                                          "count of applied steps",
                                          "?",
                                          "the values of optimizer groups (a hash)"};
  return names[static_cast<std::int64_t>(what)];
}

std::string text_of(Differs what, std::int64_t value) {
  if (what == Differs::collectives || what == Differs::groups)
    return text_of_hash(std::bit_cast<std::uint64_t>(value));
  if (what == Differs::learning_rate) return shortest_text(std::bit_cast<double>(value));
  if (what == Differs::inspects) return value != 0 ? "one" : "none";
  if (what == Differs::skip) return value != 0 ? "skip" : "apply";
  return std::to_string(value);
}

}  // namespace

void throw_if_ranks_differ(const optim::StepDecision& found) {
  const auto what = static_cast<Differs>(found.differs);
  if (what == Differs::nothing) return;
  const std::string step = "before step " + std::to_string(found.differing_step);
  const std::string rank = "rank " + std::to_string(found.differing_rank);
  if (what == Differs::failed)
    throw PeerFailed(step + " " + rank + " failed in host work for its GPU",
                     static_cast<int>(found.value));
  throw DisagreementError(step + " ranks differ in " + name_of(what) + ": rank 0 has " +
                          text_of(what, found.value_of_root) + ", " + rank + " has " +
                          text_of(what, found.value) +
                          "; every rank must make the same calls with the same values");
}

namespace {

// Lists the ranks whose text differs from the root's, with the first differing line; "" if none
// does.
std::string find_differences(Ranks& ranks, const std::string& subject, const std::string& text) {
  if (ranks.all_have(subject, text)) return "";
  const std::string own = first_difference(text, ranks.broadcast_text(subject, text));
  const std::vector<std::string> lines = ranks.gather_texts(subject, own.substr(0, longest_line));
  std::string report;
  int listed = 0;
  for (std::size_t rank = 0; rank < lines.size(); ++rank)
    if (!lines[rank].empty() && ++listed <= 4)
      report += std::string(" ") + ranks.noun() + " " + std::to_string(rank) + " has " +
                lines[rank] + ";";
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

void name_differing_values(Ranks& ranks, const optim::StepDecision& decision,
                           const std::string& values) {
  if (static_cast<Differs>(decision.differs) != Differs::groups) return;
  const std::string step = std::to_string(decision.differing_step);
  const std::string found =
      find_differences(ranks, "agreement on the values of groups before step " + step, values);
  if (found.empty()) return;
  throw DisagreementError("before step " + step + " " + ranks.noun() +
                          "s give optimizer groups different values:" + found +
                          " give the same values on every rank");
}

}  // namespace zero::detail
