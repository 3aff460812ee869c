#include "examples/gpt/data/data_source.h"

#include <algorithm>
#include <cstdio>

#include "examples/gpt/data/sample_order.h"
#include "examples/gpt/data/word_source.h"
#include "zero/zero.h"

namespace gpt {
namespace {

void check_vocabulary(std::int64_t needed, std::int64_t vocabulary, const std::string& what) {
  if (vocabulary < needed)
    throw zero::ConfigError(what + " needs a vocabulary of " + std::to_string(needed) +
                            "; the model's is " + std::to_string(vocabulary));
}

class BuiltInData : public DataSource {
 public:
  explicit BuiltInData(const DataOptions& options)
      : source_(options.seed), floor_(source_.entropy(options.sequence_length)) {
    check_vocabulary(256, options.vocabulary, "the built-in text");
  }

  void read(std::int64_t index, std::span<std::int32_t> text) const override {
    source_.read(index, text);
  }

  std::optional<double> floor() const override { return floor_; }

  zero::Text fingerprint() const override { return {{"--data", describe()}}; }

  std::string describe() const override {
    return "built-in text of " + std::to_string(WordSource::words().size()) +
           " words (--data FILE takes your own)";
  }

 private:
  WordSource source_;
  double floor_;
};

class FileData : public DataSource {
 public:
  explicit FileData(const DataOptions& options)
      : vocabulary_(options.vocabulary), length_(options.sequence_length) {
    for (const std::string& path : options.paths) {
      files_.emplace_back(path, options.token_type);
      begins_.push_back(total_);
      total_ += files_.back().tokens();
      if (files_.back().is_text() != files_.front().is_text())
        throw zero::ConfigError("--data " + path + " is " + files_.back().kind() + ", " +
                                files_.front().path() + " is " + files_.front().kind() +
                                ": give files of one kind");
    }
    if (files_.front().is_text())
      check_vocabulary(256, vocabulary_, "text, whose tokens are bytes,");
    check_length();
    order_.emplace((total_ - 1) / length_, options.seed);
    for (const TokenFile& file : files_) check_begin_and_end(file);
  }

  // Neighboring samples share a token: a sample's last target is the first input of the next.
  void read(std::int64_t index, std::span<std::int32_t> text) const override {
    std::int64_t first = order_->at(index) * length_;
    auto file = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), first) -
                                         begins_.begin() - 1);
    for (; !text.empty(); ++file) {
      const std::int64_t place = first - begins_[file];
      const auto count =
          std::min(static_cast<std::int64_t>(text.size()), files_[file].tokens() - place);
      const auto part = text.first(static_cast<std::size_t>(count));
      files_[file].read(place, part);
      check_tokens(files_[file], place, part);
      text = text.subspan(static_cast<std::size_t>(count));
      first += count;
    }
  }

  zero::Text fingerprint() const override {
    zero::Text values = {{"--data", describe()}};
    for (std::size_t i = 0; i < files_.size(); ++i)
      values["--data, file " + std::to_string(i + 1)] =
          std::to_string(files_[i].tokens()) + " tokens, content " + sampled_content(files_[i]);
    return values;
  }

  std::string describe() const override {
    return std::to_string(total_) + " tokens in " + std::to_string(files_.size()) +
           (files_.size() == 1 ? " file of " : " files of ") + files_.front().kind() + ", " +
           std::to_string((total_ - 1) / length_) + " samples an epoch" + remark();
  }

 private:
  // Ends a training run before the first step if the start or the end of a file holds tokens
  // outside the vocabulary.
  void check_begin_and_end(const TokenFile& file) const {
    std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(std::min<std::int64_t>(4096, file.tokens())));
    for (const std::int64_t place : {std::int64_t{0}, file.tokens() - std::ssize(tokens)}) {
      file.read(place, tokens);
      check_tokens(file, place, tokens);
    }
  }

  std::string remark() const {
    const bool narrow = std::ranges::any_of(files_, [](const TokenFile& file) {
      return file.is_guessed() && file.type() == TokenType::uint16;
    });
    if (!narrow || vocabulary_ <= 65536) return "";
    return "; 16 bits by the name alone, though the model's vocabulary needs more: --token-dtype "
           "says which";
  }

  // Hashes blocks spread evenly over the file, including the first and the last; a small file is
  // hashed whole.
  static std::string sampled_content(const TokenFile& file) {
    constexpr std::int64_t most_blocks = 256, block = 4096;
    const std::int64_t blocks = std::min(most_blocks, (file.tokens() + block - 1) / block);
    std::vector<std::int32_t> tokens(std::min(block, file.tokens()));
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t last = file.tokens() - std::ssize(tokens);
      file.read(blocks > 1 ? last * b / (blocks - 1) : 0, tokens);
      for (const std::int32_t token : tokens)
        hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001b3u;
    }
    char text[24];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    return text;
  }

  void check_length() const {
    if (total_ > length_) return;
    std::string message = "--data ";
    for (const TokenFile& file : files_) message += file.path() + " ";
    message += "holds " + std::to_string(total_) + " tokens, fewer than the " +
               std::to_string(length_ + 1) + " of one sample";
    if (total_ >= 2)
      message +=
          "; give more text, or --sequence-length " + std::to_string(total_ - 1) + " or less";
    throw zero::ConfigError(message);
  }

  void check_tokens(const TokenFile& file, std::int64_t place,
                    std::span<const std::int32_t> tokens) const {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (static_cast<std::uint32_t>(tokens[i]) >= static_cast<std::uint64_t>(vocabulary_))
        throw zero::ConfigError(
            "--data " + file.path() + ": token " +
            std::to_string(place + static_cast<std::int64_t>(i)) + " is " +
            std::to_string(static_cast<std::uint32_t>(tokens[i])) +
            ", outside the model's vocabulary of " + std::to_string(vocabulary_) + " (read as " +
            file.kind() + "); give the right --token-dtype, or a --model with this vocabulary");
  }

  std::int64_t vocabulary_, length_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> begins_;
  std::int64_t total_ = 0;
  std::optional<SampleOrder> order_;
};

}  // namespace

std::unique_ptr<DataSource> open_data(const DataOptions& options) {
  if (options.paths.empty()) return std::make_unique<BuiltInData>(options);
  return std::make_unique<FileData>(options);
}

std::int64_t data_vocabulary(const std::vector<std::string>& paths, TokenType type) {
  for (const std::string& path : paths)
    if (!TokenFile(path, type).is_text()) return 50257;
  return 256;
}

}  // namespace gpt
