// The stream of training samples, a function of (seed, index) alone: step s takes samples
// [s B, (s + 1) B) of the global batch B, and any rank can read its part of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "examples/gpt/token_file.h"
#include "zero/config.h"

namespace gpt {

struct DataOptions {
  std::vector<std::string> paths;  // none: the built-in source
  TokenType token_type = TokenType::automatic;
  std::int64_t sequence_length = 0;
  std::int64_t vocabulary = 0;
  std::uint64_t seed = 0;
};

class DataSource {
 public:
  virtual ~DataSource() = default;

  // Sample `index` of the endless stream: sequence_length + 1 tokens, of which the first are the
  // input and the last the targets. Throws ConfigError for a token outside the vocabulary and for a
  // file that can no longer be read, naming file and place.
  virtual void read(std::int64_t index, std::span<std::int32_t> text) const = 0;
  // The least mean loss a model can reach, in nats per token, where it is known.
  virtual std::optional<double> floor() const { return std::nullopt; }
  // What must be equal on all ranks, by name: length, kind and content.
  virtual zero::Text fingerprint() const = 0;
  // One line for the start of a log.
  virtual std::string describe() const = 0;
};

// Opens the files, in order, as one text. Throws ConfigError.
std::unique_ptr<DataSource> open_data(const DataOptions& options);

// How many different tokens the data may hold: 256 for text and the built-in source, GPT-2's 50257
// for stored tokens. Opens the files.
std::int64_t data_vocabulary(const std::vector<std::string>& paths, TokenType type);

}  // namespace gpt
