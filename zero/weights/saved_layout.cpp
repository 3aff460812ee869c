#include "zero/weights/saved_layout.h"

#include <string>
#include <tuple>

#include "zero/checkpoint/saved_file.h"

namespace zero::detail {

using checkpoint::ElementRange;
using checkpoint::ManifestParameter;

std::vector<ElementRange> SavedLayout::ranges(const Place& place, const Wanted& wanted) const {
  std::vector<ElementRange> ranges;
  const int states = static_cast<int>(updates().state_names().size());
  const StageParts::Part* held = in_stages() ? &stages->of_stage[place.pipe_rank] : nullptr;
  const auto& [part, layout] = held != nullptr ? std::tie(held->model, held->layout)
                               : tensor.of_rank.empty()
                                   ? std::tie(model, plan.layout)
                                   : std::tie(tensor.of_rank[place.tensor_rank].model,
                                              tensor.of_rank[place.tensor_rank].layout);
  for (const SegmentId& id : layout.segments()) {
    const Segment& segment = layout.segment(id);
    if (wanted.trainable_only && !segment.trainable) continue;
    if (wanted.saved_only && (segment.elsewhere || (!segment.split && place.tensor_rank != 0)))
      continue;
    const std::vector<ParamRange> pieces =
        params_in(part, segment, layout.slice_of(segment, place.data_rank));
    for (int kind = 0; kind <= (segment.trainable ? states : 0); ++kind)
      for (const ParamRange& piece : pieces) {
        const int param = held != nullptr ? held->in_whole[piece.param] : piece.param;
        if (kind == 0 || updates().has_state(param, kind - 1))
          ranges.push_back({param, kind,
                            tensor.begin(piece.param, place.tensor_rank) + piece.param_begin,
                            piece.count});
      }
  }
  return ranges;
}

ManifestParameter SavedLayout::parameter(int param) const {
  const ParamDeclaration& declaration = whole().params[param];
  const auto [home, own] = in_stages() ? stages->homes[param] : StageParts::Home{0, param};
  const Layout& layout = in_stages() ? stages->of_stage[home].layout : plan.layout;
  const SegmentTypes types = plan.policy.types(layout.segment(layout.place_of_param[own]));
  ManifestParameter described{.name = declaration.name,
                              .shape = declaration.shape,
                              .trainable = declaration.options.trainable,
                              .also_named = declaration.also_named};
  if (const TensorSplit* split = in_stages() ? nullptr : tensor.split(param)) {
    described.shape = split->shape;
    described.split_dim = declaration.options.split_dim;
    described.split_sizes = split->sizes;
  }
  described.dtype = declaration.file_dtype(described.trainable ? types.master_dtype : types.dtype);
  if (!described.trainable) return described;
  described.states_dtype = checkpoint::safetensors_name(types.state_dtype);
  const std::vector<std::string>& all = updates().state_names();
  std::vector<std::string> some;
  for (std::size_t k = 0; k < all.size(); ++k)
    if (updates().has_state(param, k)) some.push_back(all[k]);
  if (some.size() < all.size()) described.states = some;
  return described;
}

std::vector<ManifestParameter> SavedLayout::buffers() const {
  std::vector<ManifestParameter> described;
  for (int b = 0; b < std::ssize(plan.buffers.all); ++b) {
    const BufferDeclaration& buffer = plan.buffers.all[b];
    const int matrix = plan.buffers.moment_of(b);
    described.push_back({.name = buffer.name,
                         .shape = buffer.shape,
                         .dtype = buffer.dtype,
                         .trainable = false,
                         .buffer = true,
                         .moment_of = matrix < 0 ? "" : model.params[matrix].name,
                         .also_named = buffer.also_named});
  }
  return described;
}

std::int64_t SavedLayout::peer_copy_bytes(int rank, const std::vector<int>& node_of) const {
  checkpoint::Manifest manifest;
  manifest.states = plan.updates.state_names();
  for (int p = 0; p < std::ssize(model.params); ++p) manifest.parameters.push_back(parameter(p));
  for (ManifestParameter& buffer : buffers()) manifest.parameters.push_back(std::move(buffer));
  return checkpoint::peer_copy_bytes(rank, node_of, [&](int other) {
    return file_bytes(manifest, file_entries(ranges_of(other, false), manifest, other));
  });
}

}  // namespace zero::detail
