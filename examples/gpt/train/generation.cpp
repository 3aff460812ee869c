#include "examples/gpt/train/generation.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "examples/gpt/cpu/decoder.h"
#include "examples/gpt/model/model_spec.h"
#include "examples/gpt/model/sampling.h"
#include "examples/gpt/train/same_on_all_ranks.h"
#include "examples/gpt/train/task.h"
#include "examples/gpt/train/training_step.h"
#include "zero/base/number_text.h"

namespace gpt {
namespace {

constexpr std::int64_t byte_vocabulary = 256;

// Tokens of up to 256 are bytes; others are given and printed as numbers.
bool are_bytes(const ModelConfig& model) {
  return model.vocabulary <= byte_vocabulary;
}

std::vector<std::int32_t> tokens_of(const std::string& prompt, const ModelConfig& model) {
  std::vector<std::int32_t> tokens;
  if (are_bytes(model)) {
    for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  } else {
    const char *at = prompt.data(), *end = at + prompt.size();
    while (at < end) {
      if (*at == ' ' || *at == ',') {
        ++at;
        continue;
      }
      std::int32_t token = -1;
      const auto [after, error] = std::from_chars(at, end, token);
      if (error != std::errc() || (after < end && *after != ' ' && *after != ','))
        throw zero::ConfigError("--prompt \"" + prompt + "\": the model has " +
                                std::to_string(model.vocabulary) +
                                " tokens, and train_gpt no tokenizer: expected numbers of tokens, "
                                "such as \"464 2068 7586\"");
      tokens.push_back(token);
      at = after;
    }
  }
  if (tokens.empty()) throw zero::ConfigError("--generate needs --prompt STRING");
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= model.vocabulary)
      throw zero::ConfigError("--prompt: token " + std::to_string(token) +
                              " is outside the model's vocabulary of " +
                              std::to_string(model.vocabulary));
  return tokens;
}

void print(std::int32_t token, const ModelConfig& model) {
  if (are_bytes(model))
    std::putchar(token);
  else
    std::printf("%d ", token);
  std::fflush(stdout);
}

template <class T>
class Generator {
 public:
  Generator(zero::Runtime& runtime, zero::Engine& engine, const Task& task, std::int64_t context)
      : engine_(engine), decoder_(task.model, context, runtime.pool()) {
    runtime.track("activations", decoder_.cache_bytes());
  }

  std::int64_t cache_bytes() const { return decoder_.cache_bytes(); }

  // A pass over the model.
  std::int32_t next(const std::vector<std::int32_t>& tokens, const Sampling& sampling,
                    std::uint64_t number) {
    {
      const zero::ForwardScope scope = engine_.unit(decoder_.names().embedding_unit).forward();
      decoder_.embed(tokens, ScopeValues<T>(scope));
    }
    for (int layer = 0; layer < decoder_.layers(); ++layer) {
      const zero::ForwardScope scope = engine_.unit(decoder_.names().block_unit(layer)).forward();
      decoder_.block(layer, ScopeValues<T>(scope));
    }
    const zero::ForwardScope scope = engine_.unit(decoder_.names().head_unit).forward();
    return choose(decoder_.head(ScopeValues<T>(scope)), sampling, number);
  }

 private:
  zero::Engine& engine_;
  Decoder<T> decoder_;
};

template <class T>
void run(zero::Runtime& runtime, zero::Engine& engine, const Task& task) {
  const Options& options = task.options;
  std::vector<std::int32_t> tokens = tokens_of(options.prompt, task.model);
  const std::int64_t context = std::ssize(tokens) + options.generate;
  if (context > task.model.context)
    throw zero::ConfigError("--generate " + std::to_string(options.generate) + " after " +
                            std::to_string(tokens.size()) +
                            " tokens of --prompt: the model has a "
                            "context of " +
                            std::to_string(task.model.context));
  Generator<T> generator(runtime, engine, task, context);
  if (runtime.is_root()) {
    std::printf("%s\ncache    %s of keys and values for %lld tokens\n\n",
                engine.memory_table().c_str(), zero::byte_text(generator.cache_bytes()).c_str(),
                static_cast<long long>(context));
    for (const std::int32_t token : tokens) print(token, task.model);
  }
  const Sampling sampling{options.temperature, options.top_k, task.config.seed};
  const auto begin = std::chrono::steady_clock::now();
  zero::Evaluation evaluation = engine.evaluate();
  for (std::int64_t i = 0; i < options.generate; ++i) {
    evaluation.next(true);
    tokens = {generator.next(tokens, sampling, static_cast<std::uint64_t>(i))};
    if (runtime.is_root()) print(tokens.front(), task.model);
  }
  evaluation.next(false);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (runtime.is_root())
    std::printf("\n\n%lld tokens in %.2f s, %.1f tokens/s\n",
                static_cast<long long>(options.generate), seconds,
                static_cast<double>(options.generate) / seconds);
}

}  // namespace

int generate(zero::Runtime& runtime, const Options& options) {
  const Task task = resolve(options);
  zero::Engine engine(runtime, describe(task.model, false), task.config);
  agree_on_inputs(runtime, engine, task);
  set_start_values(engine, task, runtime.pool());
  if (engine.compute_dtype() == zero::DType::bf16)
    run<zero::bf16>(runtime, engine, task);
  else if (engine.compute_dtype() == zero::DType::fp16)
    run<zero::fp16>(runtime, engine, task);
  else
    run<float>(runtime, engine, task);
  return 0;
}

}  // namespace gpt
