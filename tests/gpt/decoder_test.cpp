// Generation: the decoder's logits against the losses of the model that trains, and the choice of
// tokens.
#include "examples/gpt/cpu/decoder.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "examples/gpt/model/sampling.h"
#include "tests/gpt/plain_model.h"

namespace {

using gpt::ModelConfig;
using gpt::testing::PlainModel;
using gpt::testing::RandomBatch;

ModelConfig llama_of(const char* type) {
  ModelConfig config{"llama", 2, 6, 7, 11, 40, 1e-5, 0.02, type, 2, 4, 10};
  config.attention_bias = config.mlp_bias = type == std::string("llama");
  config.tied = false;
  config.rope = {.type = "yarn", .theta = 50, .factor = 4, .original_context = 6};
  return config;
}

template <class T>
std::vector<float> pass(gpt::Decoder<T>& decoder, PlainModel<T>& model,
                        std::span<const std::int32_t> tokens) {
  const gpt::PartNames& names = decoder.names();
  decoder.embed(tokens, model.unit(names.embedding_unit));
  for (int layer = 0; layer < decoder.layers(); ++layer)
    decoder.block(layer, model.unit(names.block_unit(layer)));
  const auto logits = decoder.head(model.unit(names.head_unit));
  return {logits.begin(), logits.end()};
}

double loss_of(const std::vector<float>& logits, std::int32_t target) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum) - logits[static_cast<std::size_t>(target)];
}

template <class T>
void check(const ModelConfig& config, double tolerance) {
  CAPTURE(config.model_type);
  constexpr std::int64_t count = 33;
  zero::ThreadPool pool(2);
  PlainModel<T> model(config, 1, count, pool);
  const RandomBatch batch(1, count, config.vocabulary);
  const double expected = model.run(batch.view());
  gpt::Decoder<T> decoder(config, count, pool), at_once(config, count, pool);
  double loss = 0;
  std::vector<float> last;
  for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
    last = pass<T>(decoder, model, std::span(batch.tokens).subspan(t, 1));
    loss += loss_of(last, batch.targets[t]) / count;
  }
  CHECK(loss == doctest::Approx(expected).epsilon(tolerance));
  // A pass over several tokens is the same as a pass for each.
  pass<T>(at_once, model, std::span(batch.tokens).first(20));
  CHECK(pass<T>(at_once, model, std::span(batch.tokens).subspan(20)) == last);
  CHECK(decoder.cache_bytes() == 2 * config.layers * count * config.key_heads *
                                     config.head_channels * static_cast<std::int64_t>(sizeof(T)));
  CHECK_THROWS(pass<T>(decoder, model, std::span(batch.tokens).first(1)));
}

}  // namespace

TEST_CASE("a decoder has the losses of the model that trains") {
  ModelConfig gpt2{"test", 2, 2, 8, 13, 40};
  gpt2.key_heads = gpt2.heads;
  gpt2.head_channels = gpt2.channels / gpt2.heads;
  for (const ModelConfig& config :
       {gpt2, llama_of("llama"), llama_of("qwen2"), llama_of("olmo2")}) {
    check<float>(config, 1e-5);
    check<zero::bf16>(config, 2e-2);
  }
}

TEST_CASE("tokens are the most likely, or drawn by seed from the most likely") {
  const std::vector<float> logits{0.5f, 2, -1, 2, 1.9f};
  CHECK(gpt::choose(logits, {}, 0) == 1);
  std::map<std::int32_t, int> drawn, of_two, cold;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    ++drawn[gpt::choose(logits, {.temperature = 1, .seed = 3}, i)];
    ++of_two[gpt::choose(logits, {.temperature = 1, .top_k = 2, .seed = 3}, i)];
    ++cold[gpt::choose(logits, {.temperature = 0.01, .seed = 3}, i)];
  }
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (std::int32_t token = 0; token < 5; ++token)
    CHECK(drawn[token] / 4000.0 ==
          doctest::Approx(std::exp(static_cast<double>(logits[static_cast<std::size_t>(token)])) /
                          total)
              .epsilon(0.25));
  CHECK(of_two.size() == 2);
  CHECK(of_two.contains(1));
  CHECK(of_two.contains(3));
  CHECK(cold.size() == 2);
  CHECK(gpt::choose(logits, {.temperature = 1, .seed = 4}, 7) ==
        gpt::choose(logits, {.temperature = 1, .seed = 4}, 7));
}
