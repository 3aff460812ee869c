#include "zero/weights/change_windows.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace zero::detail {

namespace {

// Bytes of a changed element of 4 bytes: as sent, and as delivered, once more for a caller that
// still has the last.
constexpr std::int64_t most_bytes_of_element = 8 + 2 * 12;
constexpr std::int64_t alignment = 128;

}  // namespace

ChangeWindows::ChangeWindows(TrainState& train, std::int64_t budget, int only_rank)
    : train_(train),
      only_rank_(only_rank),
      elements_(budget / most_bytes_of_element / train.rank_count() / alignment * alignment) {
  if (elements_ == 0)
    throw UsageError("Engine::changes(): the budget is " + std::to_string(budget) +
                     " bytes; expected at least " +
                     std::to_string(most_bytes_of_element * train.rank_count() * alignment));
}

Range ChangeWindows::window_of(const Segment& segment, int rank) const {
  const Range slice = train_.layout().slice_of(segment, rank);
  return intersection({slice.begin + begin_, slice.begin + begin_ + elements_}, slice);
}

// Returns the changed elements of this rank: each the number in the window, and the value.
std::string ChangeWindows::collect(const SegmentId& id, const Range& window) {
  std::string found;
  const std::vector<std::uint8_t> bits = train_.changes.take(id, window);
  if (std::ranges::count(bits, 0) == std::ssize(bits)) return found;
  const ArrayId array{id, ArrayKind::parameter_shard};
  const std::int64_t width = size_of(train_.store->dtype_of(array));
  train_.store->visit(array, window.begin, window.end,
                      [&](std::int64_t begin, std::span<std::byte> values) {
                        for (std::int64_t i = 0; i < std::ssize(values) / width; ++i) {
                          const std::int64_t at = begin + i - window.begin;
                          if ((bits[at / 8] >> (at % 8) & 1) == 0) continue;
                          const auto number = static_cast<std::uint32_t>(at);
                          found.append(reinterpret_cast<const char*>(&number), sizeof number);
                          found.append(reinterpret_cast<const char*>(&values[i * width]), width);
                        }
                      });
  return found;
}

void ChangeWindows::deliver(const SegmentId& id, const Range& window, std::string_view changes,
                            const std::function<void(const ChangedValues&)>& visitor) {
  const DType dtype = train_.arrays.segment(id).dtype;
  const std::size_t width = size_of(dtype), bytes = sizeof(std::uint32_t) + width;
  std::vector<std::int64_t> elements;
  std::vector<std::byte> values;
  for (const ParamRange& part : params_in(train_.model, train_.layout().segment(id), window)) {
    elements.clear();
    values.clear();
    for (; !changes.empty(); changes.remove_prefix(bytes)) {
      std::uint32_t number = 0;
      std::memcpy(&number, changes.data(), sizeof number);
      const std::int64_t at = window.begin + number - part.segment_begin;
      if (at >= part.count) break;
      if (at < 0) continue;  // padding, which no parameter has
      elements.push_back(part.param_begin + at);
      const auto* value = reinterpret_cast<const std::byte*>(changes.data() + sizeof number);
      values.insert(values.end(), value, value + width);
    }
    const ParamDeclaration& declaration = train_.param(part.param);
    if (!elements.empty()) visitor({declaration.name, declaration.shape, dtype, elements, values});
  }
}

bool ChangeWindows::next(const std::function<void(const ChangedValues&)>& visitor) {
  const std::span<const SegmentId> segments = train_.layout().segments();
  if (segment_ == segments.size()) return false;
  const SegmentId id = segments[segment_];
  const Segment& segment = train_.layout().segment(id);
  const Range own = window_of(segment, train_.rank());
  const std::vector<std::string> changes = train_.ranks.gather_texts(
      train_.subject(id.flat_unit), own.empty() ? std::string() : collect(id, own));
  if (only_rank_ < 0 || only_rank_ == train_.rank())
    for (int rank = 0; rank < train_.rank_count(); ++rank)
      deliver(id, window_of(segment, rank), changes[rank], visitor);
  begin_ += elements_;
  if (begin_ >= segment.slice) ++segment_, begin_ = 0;
  return true;
}

}  // namespace zero::detail
