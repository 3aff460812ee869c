#include <algorithm>
#include <cmath>
#include <cstdio>

#include "zero/checkpoint/model_files.h"
#include "zero/engine_core.h"

// Whole models in files that other programs read.
namespace zero::detail {

using checkpoint::TensorEntry;

void EngineCore::load_weights(const std::string& file,
                              const std::function<std::string(std::string_view)>& name_in_file) {
  require_checkpoint_border("Engine::load_weights()");
  drain();
  const checkpoint::ModelReader reader(file);
  const auto name_of_param = [&](std::string_view name) {
    return name_in_file ? name_in_file(name) : std::string(name);
  };
  std::string problems;
  std::size_t used = 0;
  for (const ParamDeclaration& declaration : model_.params) {
    const std::string name = name_of_param(declaration.name);
    const TensorEntry* tensor = reader.find(name);
    if (tensor == nullptr)
      problems += "\n  " + name + " is missing";
    else if (tensor->shape != declaration.shape)
      problems += "\n  " + name + " has shape " + to_text(tensor->shape) + ", the model has " +
                  to_text(declaration.shape);
    else
      ++used;
  }
  if (!problems.empty()) throw LoadError(reader.path() + " does not fit the model:" + problems);
  if (used < reader.tensor_count() && rank() == 0)
    std::fprintf(stderr, "zero: %s holds %zu tensors that the model does not have; left alone\n",
                 reader.path().c_str(), reader.tensor_count() - used);
  initialize([&](ParamShard shard) {
    reader.read(name_of_param(shard.name), shard.begin, shard.values);
    refuse_non_finite(reader.path(), shard);
  });
}

void EngineCore::refuse_non_finite(const std::string& file, const ParamShard& shard) const {
  if (config_.zero_core.allow_non_finite_weights) return;
  const auto at = std::find_if_not(shard.values.begin(), shard.values.end(),
                                   [](float value) { return std::isfinite(value); });
  if (at == shard.values.end()) return;
  throw LoadError(file + ": " + std::string(shard.name) + " is not finite at element " +
                  std::to_string(shard.begin + (at - shard.values.begin())) +
                  "; zero_core.allow_non_finite_weights loads it nevertheless");
}

// Collective; the root writes. Wider dtypes come first, so that every tensor is aligned to its
// elements whatever the sizes.
void EngineCore::export_model(const std::string& directory, const ExportOptions& options) {
  require_step_border("Engine::export_model()");
  drain();
  std::vector<std::pair<int, int>> segments;  // flat unit, segment
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
    for (std::size_t s = 0; s < plan_.layout.flat_units[f].segments.size(); ++s)
      segments.emplace_back(static_cast<int>(f), static_cast<int>(s));
  const auto parameters_of = [](const std::pair<int, int>& at) {
    return ArrayId{at.first, at.second, ArrayKind::parameter};
  };
  const auto dtype_of_segment = [&](const std::pair<int, int>& at) {
    return store_->dtype_of(parameters_of(at));
  };
  std::stable_sort(segments.begin(), segments.end(), [&](const auto& a, const auto& b) {
    return size_of(dtype_of_segment(a)) > size_of(dtype_of_segment(b));
  });
  const auto params_of = [&](const std::pair<int, int>& at) -> const std::vector<ParamPlace>& {
    return flat(at.first).segments[static_cast<std::size_t>(at.second)].params;
  };
  std::unique_ptr<checkpoint::ModelWriter> writer;
  if (rank() == 0) {
    std::vector<TensorEntry> tensors;
    for (const auto& at : segments)
      for (const ParamPlace& place : params_of(at))
        tensors.push_back({param(place.param).name,
                           checkpoint::safetensors_name(dtype_of_segment(at)),
                           param(place.param).shape, 0, 0});
    writer = std::make_unique<checkpoint::ModelWriter>(
        directory, checkpoint::divide_model(tensors, options.max_file_bytes));
  }
  for (const auto& at : segments) {
    const std::vector<std::byte> whole = gather_segment(parameters_of(at));
    if (!writer) continue;
    const std::int64_t width = size_of(dtype_of_segment(at));
    for (const ParamPlace& place : params_of(at))
      writer->write(
          std::span(whole).subspan(static_cast<std::size_t>(place.offset * width),
                                   static_cast<std::size_t>(param(place.param).elements * width)));
  }
  if (writer) writer->finish();
  runtime_.gather_words("Engine::export_model", {0});
}

}  // namespace zero::detail
