#include "zero/weights/saved_residues.h"

#include <algorithm>
#include <limits>

namespace zero::detail {

using checkpoint::ElementRange;
using checkpoint::Manifest;
using checkpoint::ManifestParameter;

namespace {

constexpr std::int64_t width = size_of(DType::int64);

std::vector<ResidueMove> moves_from(const TrainState& train, const std::string& path,
                                    const Manifest& saved) {
  std::vector<SavedPlace> places;
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();  // the smallest array of residues
  for (const ManifestParameter& parameter : saved.parameters) {
    if (parameter.of_rank) bytes = std::min(bytes, parameter.elements() * width);
    if (const auto& at = parameter.residues_at; parameter.trainable)
      places.push_back({train.model.find(parameter.name), at[0], at[1], at[2]});
  }
  const auto saved_layout = layout_of(train.model, train.layout().grid, places);
  if (!saved_layout || Residues(Routes(train.plan, *saved_layout), train.policy()).bytes() > bytes)
    throw LoadError(path + ": the manifest's residues_at lie outside of the saved residues");
  return residue_moves(train.model, train.plan, *saved_layout);
}

}  // namespace

std::span<std::byte> SavedResidues::part(const ElementRange& range) const {
  return residues().kept().subspan(static_cast<std::size_t>(range.begin * width),
                                   static_cast<std::size_t>(range.count * width));
}

std::vector<std::int64_t> SavedResidues::at(int param) const {
  const Place& place = train_.place(param);
  const auto segments = train_.layout().segments();
  return {std::ranges::find(segments, SegmentId(place)) - segments.begin(),
          train_.layout().segment(place).slice, place.offset};
}

void SavedResidues::check(const std::string& path, const Manifest& saved, const Manifest& own) {
  restores_ = saved.has_residues_for(own);
  moves_.clear();
  if (restores_ && !saved.lays_residues_as(own)) moves_ = moves_from(train_, path, saved);
}

std::vector<ElementRange> SavedResidues::laid_otherwise() const {
  std::vector<ElementRange> ranges;
  for (const ResidueMove& move : moves_) {
    const std::int64_t begin = move.from / width, end = (move.from_end() + width - 1) / width;
    const int number = first_number() + move.from_rank;
    if (!ranges.empty() && ranges.back().parameter == number && begin <= ranges.back().end())
      ranges.back().count = std::max(ranges.back().end(), end) - ranges.back().begin;
    else
      ranges.push_back({number, 0, begin, end - begin});
  }
  return ranges;
}

void SavedResidues::write(const ElementRange& range, std::span<const std::byte> bytes) const {
  if (moves_.empty())
    return copy_and_wait(train_.runtime, part(range).data(), bytes.data(), std::ssize(bytes));
  const std::int64_t begin = range.begin * width, end = begin + std::ssize(bytes);
  const int rank = range.parameter - first_number();
  for (const ResidueMove& move : moves_) {
    const std::int64_t from = std::max(begin, move.from), to = std::min(end, move.from_end());
    if (move.from_rank == rank && from < to)
      copy_and_wait(train_.runtime, residues().kept().data() + move.to + (from - move.from),
                    bytes.data() + (from - begin), to - from);
  }
}

void SavedResidues::clear_unless_restored() const {
  const std::span<std::byte> all = residues().kept();
  if (restores_ || all.empty()) return;
  queue_zeros(train_.runtime, all.data(), std::ssize(all));
  train_.runtime.compute().synchronize();
}

}  // namespace zero::detail
