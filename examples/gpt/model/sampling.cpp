#include "examples/gpt/model/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "examples/gpt/model/random.h"

namespace gpt {

std::int32_t choose(std::span<const float> logits, const Sampling& sampling, std::uint64_t number) {
  if (sampling.temperature == 0)
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float of_a = logits[static_cast<std::size_t>(a)],
                of_b = logits[static_cast<std::size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  const auto kept = sampling.top_k == 0
                        ? std::ssize(tokens)
                        : std::min<std::int64_t>(sampling.top_k, std::ssize(tokens));
  std::partial_sort(tokens.begin(), tokens.begin() + kept, tokens.end(), more_likely);
  tokens.resize(static_cast<std::size_t>(kept));
  const double most = logits[static_cast<std::size_t>(tokens.front())];
  std::vector<double> sums;  // of weights, up to each token
  for (const std::int32_t token : tokens)
    sums.push_back(
        (sums.empty() ? 0 : sums.back()) +
        std::exp((logits[static_cast<std::size_t>(token)] - most) / sampling.temperature));
  const double drawn = CounterRandom(sampling.seed, "sampling").uniform(number) * sums.back();
  const auto found = std::ranges::lower_bound(sums, drawn);
  return tokens[static_cast<std::size_t>(std::min(found - sums.begin(), std::ssize(sums) - 1))];
}

}  // namespace gpt
