#include <algorithm>
#include <string>
#include <vector>

#include "zero/base/error.h"
#include "zero/config.h"

namespace zero {
namespace {

constexpr const char* total_key = "train_batch_size";
constexpr const char* micro_key = "train_micro_batch_size_per_gpu";
constexpr const char* steps_key = "gradient_accumulation_steps";

struct Resolution {
  std::int64_t total = 0, micro = 0, steps = 0;
  std::int64_t ranks = 1;
  const char* derived = "";  // names of the keys that were not given
};

std::string number(std::int64_t value) {
  return std::to_string(value);
}

[[noreturn]] void fail(const BatchOptions& given, const std::string& message) {
  throw ConfigError((given.place.empty() ? "" : given.place + ": ") + message);
}

bool multiply(std::int64_t a, std::int64_t b, std::int64_t& product) {
  return !__builtin_mul_overflow(a, b, &product);
}

std::int64_t product_of(const BatchOptions& given, std::int64_t steps, std::int64_t ranks) {
  const std::int64_t micro = given.train_micro_batch_size_per_gpu;
  std::int64_t product = 0;
  if (!multiply(micro, steps, product) || !multiply(product, ranks, product))
    fail(given, "the batch is too large: " + number(micro) + " x " + number(steps) + " x " +
                    number(ranks) + " samples do not fit in 64 bits");
  return product;
}

// The multiples of `share` next to `value`.
std::string neighbours(std::int64_t value, std::int64_t share) {
  const std::int64_t below = value / share * share;
  std::int64_t above = 0;
  const bool has_above = !__builtin_add_overflow(below, share, &above);
  if (below == 0 || !has_above) return number(below == 0 ? share : below);
  return number(below) + " or " + number(above);
}

// "1, 2, 4": the divisors of `value`, the first few.
std::string divisors(std::int64_t value) {
  constexpr std::size_t most = 12;
  constexpr std::int64_t farthest = 65536;
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= std::min(value, farthest) && found.size() <= most; ++d)
    if (value % d == 0) found.push_back(d);
  std::string text;
  for (std::size_t i = 0; i < std::min(found.size(), most); ++i)
    text += (i == 0 ? "" : ", ") + number(found[i]);
  return found.size() > most ? text + ", ..." : text;
}

// What the given keys alone demand of the number of ranks: total = fixed x ranks x anything.
std::string fitting_ranks(const BatchOptions& given) {
  const std::int64_t total = given.train_batch_size;
  const std::int64_t micro = std::max<std::int64_t>(given.train_micro_batch_size_per_gpu, 1);
  const std::int64_t steps = std::max<std::int64_t>(given.gradient_accumulation_steps, 1);
  std::int64_t share = 0;
  if (!multiply(micro, steps, share) || total % share != 0) return "no number of ranks";
  const bool all =
      given.train_micro_batch_size_per_gpu != 0 && given.gradient_accumulation_steps != 0;
  return all ? number(total / share) + " ranks" : divisors(total / share) + " ranks";
}

[[noreturn]] void does_not_fit(const BatchOptions& given, const Resolution& r) {
  const std::string ranks = number(r.ranks) + (r.ranks == 1 ? " rank" : " ranks");
  const auto origin = [&](const char* key) {
    return std::string(key == r.derived ? " (derived)" : "");
  };
  std::int64_t share = 0;
  const std::int64_t micro = std::max<std::int64_t>(given.train_micro_batch_size_per_gpu, 1);
  const std::int64_t steps = std::max<std::int64_t>(given.gradient_accumulation_steps, 1);
  const bool countable = multiply(micro, steps, share) && multiply(share, r.ranks, share);
  std::string message = std::string(total_key) + " " + number(r.total) + " is not " + micro_key +
                        " " + number(r.micro) + origin(micro_key) + " x " + steps_key + " " +
                        number(r.steps) + origin(steps_key) + " x " + ranks;
  if (countable)
    message += "; what fits: " + std::string(total_key) + " " + neighbours(r.total, share) +
               " on " + ranks;
  message +=
      "; " + std::string(total_key) + " " + number(r.total) + " fits " + fitting_ranks(given);
  fail(given, message);
}

void check_given(const char* key, std::int64_t value) {
  if (value < 0)
    throw ConfigError(std::string(key) + ": " + number(value) +
                      " is out of range; allowed: an integer of at "
                      "least 1");
}

}  // namespace

Batch resolve_batch(const BatchOptions& options, int ranks) {
  const std::int64_t total = options.train_batch_size;
  const std::int64_t micro = options.train_micro_batch_size_per_gpu;
  const std::int64_t steps = options.gradient_accumulation_steps;
  check_given(total_key, total);
  check_given(micro_key, micro);
  check_given(steps_key, steps);
  if (ranks < 1)
    throw UsageError("resolve_batch: the number of ranks must be at least 1, not " + number(ranks));
  if (total == 0 && micro == 0)
    throw ConfigError(
        std::string("the batch size is not given: give ") + total_key + " or " + micro_key +
        (steps == 0 ? "" : std::string(" beside ") + steps_key + " " + number(steps)) + " (" +
        total_key + " = " + micro_key + " x " + steps_key + " x ranks)");

  Resolution r{total, micro, steps, ranks, ""};
  if (total == 0) {
    r.steps = std::max<std::int64_t>(steps, 1);
    r.total = product_of(options, r.steps, ranks);
  } else if (micro == 0) {
    // DeepSpeed's floor division; what it drops shows up in the product below.
    r.steps = std::max<std::int64_t>(steps, 1);
    r.micro = total / ranks / r.steps;
    r.derived = micro_key;
  } else if (steps == 0) {
    r.steps = total / micro / ranks;
    r.derived = steps_key;
  }
  std::int64_t product = 0;
  const bool fits = multiply(r.micro, r.steps, product) && multiply(product, ranks, product) &&
                    product == r.total && product > 0;
  if (!fits) does_not_fit(options, r);
  return {r.micro, r.steps, r.total};
}

}  // namespace zero
