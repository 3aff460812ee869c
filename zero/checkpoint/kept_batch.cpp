#include "zero/checkpoint/kept_batch.h"

#include <charconv>

#include "zero/base/error.h"
#include "zero/checkpoint/checkpoint_directory.h"

namespace zero::checkpoint {

namespace {

std::int64_t term_of(const Manifest& saved, const char* name) {
  const auto found = saved.equality.find(name);
  if (found == saved.equality.end()) return 0;
  const std::string& text = found->second;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1)
    throw LoadError(saved.tag + ": its " + name + " is no number of at least 1");
  return value;
}

}  // namespace

std::optional<KeptBatch> kept_batch(const Manifest& saved) {
  const KeptBatch batch{term_of(saved, "micro_batch"), term_of(saved, "micro_batches")};
  if (batch.micro == 0 || batch.micro_batches == 0) return {};
  std::int64_t samples = 0;
  if (__builtin_mul_overflow(batch.micro, batch.micro_batches, &samples))
    throw LoadError(saved.tag + ": its batch of " + text_of(batch) + " is too large");
  return batch;
}

std::optional<KeptBatch> kept_batch(const std::string& directory, const std::string& tag) {
  const std::optional<Choice> choice = choose(directory, tag);
  return choice ? kept_batch(*choice->candidate.manifest) : std::nullopt;
}

// Checkpoints of versions without groups do not name a group.
std::optional<std::int64_t> kept_group(const Manifest& saved) {
  if (!kept_batch(saved)) return {};
  const std::int64_t group = term_of(saved, "rank_independent_group");
  return group == 0 ? 1 : group;
}

std::string text_of(const KeptBatch& batch) {
  return std::to_string(batch.micro_batches) + " micro batches of " + std::to_string(batch.micro) +
         (batch.micro == 1 ? " sample" : " samples");
}

}  // namespace zero::checkpoint
