#include "zero/runtime/outcome.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace zero::detail {

namespace {

constexpr std::size_t most_text = 2000;

template <class... Known>
[[noreturn]] void raise_as(const Outcome& outcome) {
  (..., (outcome.code == Known::code ? throw Known(outcome.text) : void()));
  throw UsageError(outcome.text);
}

}  // namespace

Outcome current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  } catch (const std::exception& error) {
    return {Error::code, error.what()};
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
  std::vector<std::int64_t> codes = ranks.gather_words(subject, {own.code});
  if (std::all_of(codes.begin(), codes.end(), [](std::int64_t code) { return code == 0; }))
    return {};
  std::vector<std::int64_t> words(most_text / 8, 0);
  std::memcpy(words.data(), own.text.data(), std::min(own.text.size(), most_text - 1));
  const std::vector<std::int64_t> all = ranks.gather_words(subject, words);
  Outcome joint;
  std::vector<std::string> seen;
  int more = 0;
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == 0) continue;
    const std::string text = reinterpret_cast<const char*>(&all[rank * words.size()]);
    if (joint.code == 0) joint.code = static_cast<int>(codes[rank]);
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;
    seen.push_back(text);
    if (seen.size() > 3)
      ++more;
    else
      joint.text +=
          (joint.text.empty() ? "" : "\n") + ("rank " + std::to_string(rank) + ": ") + text;
  }
  if (more > 0) joint.text += "\nand " + std::to_string(more) + " more";
  return joint;
}

void agree_or_raise(Ranks& ranks, const std::string& subject, const Outcome& own) {
  if (const Outcome joint = agree_on_outcome(ranks, subject, own); joint.code != 0) raise(joint);
}

}  // namespace zero::detail
