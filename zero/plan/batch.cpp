#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "zero/base/error.h"
#include "zero/config.h"
#include "zero/plan/elasticity.h"

namespace zero {
namespace {

using std::to_string;

constexpr const char* total_key = "train_batch_size";
constexpr const char* micro_key = "train_micro_batch_size_per_gpu";
constexpr const char* steps_key = "gradient_accumulation_steps";

struct Resolution {
  std::int64_t total = 0, micro = 0, steps = 0;
  std::int64_t ranks = 1;
  const char* derived = "";  // names of the keys that were derived
};

[[noreturn]] void fail(const BatchOptions& given, const std::string& message) {
  throw ConfigError((given.place.empty() ? "" : given.place + ": ") + message);
}

// Returns nothing if the product does not fit in 64 bits.
std::optional<std::int64_t> product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result)) return {};
  return result;
}

// The product of the given keys and `ranks`, with 1 for keys that are not given.
std::optional<std::int64_t> given_share(const BatchOptions& given, std::int64_t ranks) {
  return product({std::max<std::int64_t>(given.train_micro_batch_size_per_gpu, 1),
                  std::max<std::int64_t>(given.gradient_accumulation_steps, 1), ranks});
}

// The multiples of `share` next to `value`.
std::string neighbors(std::int64_t value, std::int64_t share) {
  const std::int64_t below = value / share * share;
  if (below == 0) return to_string(share);
  std::int64_t above = 0;
  return to_string(below) +
         (__builtin_add_overflow(below, share, &above) ? "" : " or " + to_string(above));
}

// "1, 2, 4": the first few divisors of `value`.
std::string divisors(std::int64_t value) {
  constexpr int most = 12;
  constexpr std::int64_t farthest = 65536;
  std::string text;
  int found = 0;
  for (std::int64_t d = 1; d <= std::min(value, farthest) && found <= most; ++d)
    if (value % d == 0 && found++ <= most)
      text += (found == 1 ? "" : ", ") + (found > most ? "..." : to_string(d));
  return text;
}

// The numbers of ranks that the given keys allow: total = fixed x ranks x anything.
std::string fitting_ranks(const BatchOptions& given) {
  const std::int64_t total = given.train_batch_size;
  const std::optional<std::int64_t> share = given_share(given, 1);
  if (!share || total % *share != 0) return "no number of ranks";
  const bool all =
      given.train_micro_batch_size_per_gpu != 0 && given.gradient_accumulation_steps != 0;
  return (all ? to_string(total / *share) : divisors(total / *share)) + " ranks";
}

[[noreturn]] void does_not_fit(const BatchOptions& given, const Resolution& r) {
  const std::string ranks = to_string(r.ranks) + (r.ranks == 1 ? " rank" : " ranks");
  const auto origin = [&](const char* key) {
    return std::string(key == r.derived ? " (derived)" : "");
  };
  std::string message = std::string(total_key) + " " + to_string(r.total) + " is not " + micro_key +
                        " " + to_string(r.micro) + origin(micro_key) + " x " + steps_key + " " +
                        to_string(r.steps) + origin(steps_key) + " x " + ranks;
  if (const std::optional<std::int64_t> share = given_share(given, r.ranks))
    message += "; what fits: " + std::string(total_key) + " " + neighbors(r.total, *share) +
               " on " + ranks;
  message +=
      "; " + std::string(total_key) + " " + to_string(r.total) + " fits " + fitting_ranks(given);
  fail(given, message);
}

// The step's micro batches are fixed, and the micro steps follow from the ranks.
Batch resolve_micro_batches(const BatchOptions& given, std::int64_t ranks) {
  const std::int64_t total = given.train_batch_size;
  const std::int64_t micro = given.train_micro_batch_size_per_gpu;
  const std::string mode = "zero_core.rank_independent";
  if (total == 0 || micro == 0)
    fail(given, mode + " needs " + total_key + " and " + micro_key +
                    ": a step has as many micro batches at any number of ranks; give both");
  if (total % micro != 0)
    fail(given, std::string(total_key) + " " + to_string(total) + " is not a multiple of " +
                    micro_key + " " + to_string(micro) + "; what fits: " + neighbors(total, micro));
  const std::int64_t count = total / micro;
  if (count < ranks)
    fail(given, std::string(total_key) + " " + to_string(total) + " / " + micro_key + " " +
                    to_string(micro) + " gives " + to_string(count) +
                    " micro batches per step, too few for " + to_string(ranks) +
                    " ranks: start at most " + to_string(count));
  const std::int64_t steps = (count + ranks - 1) / ranks;
  const std::int64_t given_steps = given.gradient_accumulation_steps;
  if (given_steps != 0 && given_steps != steps)
    fail(given, std::string(steps_key) + " is " + to_string(given_steps) + ", and with " + mode +
                    " it follows from the number of ranks (" + to_string(steps) + " on " +
                    to_string(ranks) + "): leave the key out, or write \"auto\"");
  return {micro, steps, total, count};
}

void check_given(const char* key, std::int64_t value) {
  if (value < 0)
    throw ConfigError(std::string(key) + ": " + to_string(value) +
                      " is out of range; allowed: an integer of at "
                      "least 1");
}

}  // namespace

Batch resolve_batch(const BatchOptions& options, int ranks, bool rank_independent) {
  const std::int64_t total = options.train_batch_size;
  const std::int64_t micro = options.train_micro_batch_size_per_gpu;
  const std::int64_t steps = options.gradient_accumulation_steps;
  check_given(total_key, total);
  check_given(micro_key, micro);
  check_given(steps_key, steps);
  if (ranks < 1)
    throw UsageError("resolve_batch: the number of ranks must be at least 1, not " +
                     to_string(ranks));
  if (options.elasticity.enabled) {
    const BatchOptions chosen = detail::elastic_batch(options, ranks);
    return resolve_batch(chosen, ranks, rank_independent);
  }
  if (rank_independent) return resolve_micro_batches(options, ranks);
  if (total == 0 && micro == 0)
    throw ConfigError(
        std::string("the batch size is not given: give ") + total_key + " or " + micro_key +
        (steps == 0 ? "" : std::string(" in addition to ") + steps_key + " " + to_string(steps)) +
        " (" + total_key + " = " + micro_key + " x " + steps_key + " x ranks)");

  Resolution r{total, micro, std::max<std::int64_t>(steps, 1), ranks, ""};
  if (total == 0) {
    const std::optional<std::int64_t> samples = product({micro, r.steps, ranks});
    if (!samples)
      fail(options, "the batch is too large: " + to_string(micro) + " x " + to_string(r.steps) +
                        " x " + to_string(ranks) + " samples do not fit in 64 bits");
    r.total = *samples;
  } else if (micro == 0) {
    // DeepSpeed's floor division; the check of the product below finds a remainder.
    r.micro = total / ranks / r.steps;
    r.derived = micro_key;
  } else if (steps == 0) {
    r.steps = total / micro / ranks;
    r.derived = steps_key;
  }
  if (product({r.micro, r.steps, ranks}) != r.total) does_not_fit(options, r);
  return {r.micro, r.steps, r.total, r.steps * ranks};
}

}  // namespace zero
