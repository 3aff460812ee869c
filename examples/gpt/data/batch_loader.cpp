#include "examples/gpt/data/batch_loader.h"

#include <algorithm>

namespace gpt {

BatchLoader::BatchLoader(const DataSource& data, zero::Batch batch, std::int64_t sequence_length)
    : data_(data),
      batch_(batch),
      length_(sequence_length),
      text_(static_cast<std::size_t>(sequence_length + 1)),
      tokens_(static_cast<std::size_t>(batch.micro * sequence_length)),
      targets_(tokens_.size()) {}

MicroBatch BatchLoader::load(std::int64_t step, std::int64_t number) {
  const std::int64_t first = step * batch_.global + number * batch_.micro;
  for (std::int64_t i = 0; i < batch_.micro; ++i) {
    data_.read(first + i, text_);
    std::copy(text_.begin(), text_.end() - 1, tokens_.begin() + i * length_);
    std::copy(text_.begin() + 1, text_.end(), targets_.begin() + i * length_);
  }
  return {tokens_, targets_};
}

}  // namespace gpt
