// The stream of training samples, a function of (seed, index) alone. Step s takes samples
// [s B, (s + 1) B) of the global batch B, and any rank can read its part.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "examples/gpt/data/token_file.h"
#include "zero/config.h"

namespace gpt {

struct DataOptions {
  std::vector<std::string> paths;  // empty: the built-in source
  TokenType token_type = TokenType::automatic;
  std::int64_t sequence_length = 0;
  std::int64_t vocabulary = 0;
  std::uint64_t seed = 0;
};

class DataSource {
 public:
  virtual ~DataSource() = default;

  // Reads sample `index` of the endless stream: sequence_length + 1 tokens; all but the last are
  // the input, all but the first the targets. Throws ConfigError, naming file and position, if a
  // token is outside the vocabulary or a file can no longer be read.
  virtual void read(std::int64_t index, std::span<std::int32_t> text) const = 0;
  // The lowest mean loss that a model can reach, in nats per token, if known.
  virtual std::optional<double> floor() const { return std::nullopt; }
  // Properties that must be equal on all ranks, by name: length, kind and content.
  virtual zero::Text fingerprint() const = 0;
  // Returns a line for the start of a log.
  virtual std::string describe() const = 0;
};

// Opens the files, in order, as one text. Throws ConfigError.
std::unique_ptr<DataSource> open_data(const DataOptions& options);

// Returns the number of different tokens that the data may hold: 256 for text and the built-in
// source, GPT-2's 50257 for stored tokens. Opens the files.
std::int64_t data_vocabulary(const std::vector<std::string>& paths, TokenType type);

}  // namespace gpt
