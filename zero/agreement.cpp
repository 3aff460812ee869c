#include "zero/agreement.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>

#include "zero/base/hash.h"

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
  const char* name;
  std::int64_t (*value)(const ControlWord&);
};

// What must be equal on all ranks.
constexpr Field agreed_fields[] = {
    {"step number", [](const ControlWord& w) { return w.step; }},
    {"issued collectives (hash)",
     [](const ControlWord& w) { return std::bit_cast<std::int64_t>(w.collectives_hash); }},
    {"learning rate (bits)",
     [](const ControlWord& w) { return std::bit_cast<std::int64_t>(w.learning_rate); }},
    {"StepOptions::inspect", [](const ControlWord& w) { return std::int64_t{w.inspects}; }},
    {"decision to skip", [](const ControlWord& w) { return std::int64_t{w.skip}; }},
};

std::vector<std::int64_t> packed(const ControlWord& word) {
  std::vector<std::int64_t> words;
  for (const Field& field : agreed_fields) words.push_back(field.value(word));
  words.push_back(std::bit_cast<std::int64_t>(word.loss));
  words.push_back(word.stop_requested);
  words.push_back(word.save_busy);
  words.push_back(word.save_code);
  words.push_back(word.bins.non_finite);
  words.insert(words.end(), word.bins.limbs.begin(), word.bins.limbs.end());
  return words;
}

}  // namespace

void agree_on_text(RuntimeCore& runtime, const std::string& what, const std::string& text) {
  const std::string subject = "start-up agreement on the " + what;
  const std::vector<std::int64_t> hashes =
      runtime.gather_words(subject, {std::bit_cast<std::int64_t>(hash_of(text))});
  if (std::all_of(hashes.begin(), hashes.end(), [&](std::int64_t h) { return h == hashes[0]; }))
    return;
  const std::string difference = first_difference(text, runtime.broadcast_text(subject, text));
  std::vector<std::int64_t> message(message_words, 0);
  std::memcpy(message.data(), difference.data(),
              std::min(difference.size(), message_words * 8 - 1));
  const std::vector<std::int64_t> messages = runtime.gather_words(subject, message);
  std::string report = "ranks were given different " + what + "s:";
  int listed = 0;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
    const char* line = reinterpret_cast<const char*>(&messages[rank * message_words]);
    if (*line == '\0' || ++listed > 4) continue;
    report += " rank " + std::to_string(rank) + " has " + line + ";";
  }
  throw DisagreementError(report + " start every rank with the same " + what);
}

Verdict agree_on_step(RuntimeCore& runtime, const ControlWord& own) {
  const std::vector<std::int64_t> mine = packed(own);
  const std::vector<std::int64_t> all =
      runtime.gather_words("agreement before step " + std::to_string(own.step), mine);
  const std::size_t ranks = all.size() / mine.size();
  Verdict verdict;
  verdict.skip = own.skip;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t* words = &all[rank * mine.size()];
    for (const Field& field : agreed_fields) {
      const std::int64_t value = *words++;
      if (value == all[static_cast<std::size_t>(&field - agreed_fields)]) continue;
      throw DisagreementError(
          "before step " + std::to_string(own.step) + " ranks differ in " + field.name +
          ": rank 0 has " + std::to_string(all[static_cast<std::size_t>(&field - agreed_fields)]) +
          ", rank " + std::to_string(rank) + " has " + std::to_string(value) +
          "; every rank must make the same calls with the same values");
    }
    verdict.loss += std::bit_cast<double>(*words++);
    verdict.stop_requested |= *words++ != 0;
    verdict.save_busy |= *words++ != 0;
    verdict.save_failed |= *words++ != 0;
    optim::NormBins bins;
    bins.non_finite = *words++;
    std::copy_n(words, bins.limbs.size(), bins.limbs.begin());
    if (bins.non_finite > 0) verdict.non_finite_ranks.push_back(static_cast<int>(rank));
    verdict.bins.add(bins);
  }
  verdict.loss /= static_cast<double>(ranks);
  return verdict;
}

}  // namespace zero::detail
