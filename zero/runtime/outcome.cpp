#include "zero/runtime/outcome.h"

#include <algorithm>
#include <set>
#include <vector>

namespace zero::detail {

namespace {

constexpr std::size_t longest_text = 1999;

template <class... Known>
[[noreturn]] void raise_as(const Outcome& outcome) {
  (..., (outcome.code == Known::code ? throw Known(outcome.text) : void()));
  throw UsageError(outcome.text);
}

// LibTorch appends a backtrace to messages, among them this library's messages for memory that a
// parameter does not have.
Outcome of_foreign_error(const std::string& text) {
  const std::string own = text.substr(0, text.find("\nException raised from "));
  return {own.starts_with("ZeroCore: ") ? UsageError::code : Error::code, own};
}

}  // namespace

Outcome current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  } catch (const std::exception& error) {
    return of_foreign_error(error.what());
  } catch (...) {
    return {Error::code, "an exception that is not a std::exception"};
  }
}

void raise(const Outcome& outcome) {
  raise_as<TopologyError, DisagreementError, MemoryError, SaveError, LoadError, StalledError,
           OffloadError>(outcome);
}

Outcome agree_on_outcome(Ranks& ranks, const std::string& subject, const Outcome& own) {
  if (ranks.topology().size == 1) return own;
  const std::vector<std::int64_t> codes = ranks.gather_words(subject, {own.code});
  if (std::ranges::count(codes, 0) == std::ssize(codes)) return {};
  const std::vector<std::string> texts =
      ranks.gather_texts(subject, own.text.substr(0, longest_text));
  Outcome joint;
  std::set<std::string> seen;
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == 0) continue;
    if (joint.code == 0) joint.code = static_cast<int>(codes[rank]);
    if (!seen.insert(texts[rank]).second) continue;
    if (seen.size() <= 3)
      joint.text +=
          (joint.text.empty() ? "" : "\n") + ("rank " + std::to_string(rank) + ": ") + texts[rank];
  }
  if (seen.size() > 3) joint.text += "\nand " + std::to_string(seen.size() - 3) + " more";
  return joint;
}

void agree_or_raise(Ranks& ranks, const std::string& subject, const Outcome& own) {
  if (const Outcome joint = agree_on_outcome(ranks, subject, own); joint.code != 0) raise(joint);
}

}  // namespace zero::detail
