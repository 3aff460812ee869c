#include "tools/zero/model_export.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "zero/base/dtype.h"
#include "zero/base/error.h"
#include "zero/checkpoint/model_files.h"

namespace zero::tool {
namespace {

using checkpoint::Manifest;
using checkpoint::ManifestParameter;
using checkpoint::ModelWriter;
using checkpoint::TensorEntry;

constexpr std::int64_t export_piece_elements = std::int64_t{1} << 20;

DType named(const std::string& dtype) {
  if (dtype == "fp32") return DType::fp32;
  if (dtype == "bf16") return DType::bf16;
  if (dtype == "fp16") return DType::fp16;
  throw ConfigError("--dtype " + dtype + ": expected fp32, bf16 or fp16");
}

// Returns names of safetensors files.
std::vector<std::string> output_dtypes(const Manifest& manifest, const std::string& dtype) {
  const auto computed = manifest.equality.find("compute_dtype");
  const bool known = computed != manifest.equality.end();
  const DType default_dtype = known ? named(computed->second) : DType::fp32;
  std::vector<std::string> dtypes;
  for (const ManifestParameter& parameter : manifest.parameters)
    dtypes.push_back(parameter.buffer      ? parameter.dtype
                     : !dtype.empty()      ? checkpoint::safetensors_name(named(dtype))
                     : parameter.trainable ? checkpoint::safetensors_name(default_dtype)
                                           : parameter.dtype);
  return dtypes;
}

template <class T>
void write_as(ModelWriter& writer, std::span<const float> values) {
  std::vector<T> rounded(values.size());
  std::ranges::transform(values, rounded.begin(), [](float value) { return from_float<T>(value); });
  writer.write(std::as_bytes(std::span(rounded)));
}

void write_tensor(checkpoint::CheckpointReader& reader, int parameter, const std::string& dtype,
                  ModelWriter& writer) {
  if (reader.manifest().parameters[static_cast<std::size_t>(parameter)].buffer)
    return writer.write(bytes_of(reader, parameter));
  const std::int64_t elements =
      reader.manifest().parameters[static_cast<std::size_t>(parameter)].elements();
  std::vector<float> values;
  for (std::int64_t first = 0; first < elements; first += export_piece_elements) {
    values.resize(static_cast<std::size_t>(std::min(export_piece_elements, elements - first)));
    reader.read(parameter, 0, first, values);
    if (dtype == "F32")
      writer.write(std::as_bytes(std::span(values)));
    else if (dtype == "BF16")
      write_as<bf16>(writer, values);
    else
      write_as<fp16>(writer, values);
  }
}

}  // namespace

std::vector<std::string> export_model(checkpoint::CheckpointReader& reader,
                                      const std::string& directory, const std::string& dtype,
                                      std::int64_t max_file_bytes) {
  const std::vector<ManifestParameter>& parameters = reader.manifest().parameters;
  const std::vector<std::string> dtypes = output_dtypes(reader.manifest(), dtype);
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t p) {
    return parameters[p].left_out.has_value() || parameters[p].of_rank.has_value() ||
           !parameters[p].moment_of.empty();
  });
  // Some readers need every tensor aligned to the element.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return *checkpoint::bits_of(dtypes[a]) > *checkpoint::bits_of(dtypes[b]);
  });
  std::vector<TensorEntry> tensors;
  for (const std::size_t p : order) {
    reader.require_whole(static_cast<int>(p));
    tensors.push_back({parameters[p].name, dtypes[p], parameters[p].shape, 0, 0});
    for (const std::string& other : parameters[p].also_named)
      tensors.push_back({other, dtypes[p], parameters[p].shape, 0, 0});
  }
  ModelWriter writer(directory, tensors, max_file_bytes);
  for (const std::size_t p : order)
    for (std::size_t i = 0; i <= parameters[p].also_named.size(); ++i)
      write_tensor(reader, static_cast<int>(p), dtypes[p], writer);
  return writer.finish();
}

std::vector<std::byte> bytes_of(const checkpoint::CheckpointReader& reader, int parameter) {
  using checkpoint::ElementRange;
  const checkpoint::Manifest& manifest = reader.manifest();
  const ElementRange whole{parameter, 0, 0,
                           manifest.parameters[static_cast<std::size_t>(parameter)].elements()};
  const std::int64_t width = manifest.width_of(whole);
  std::vector<std::byte> all(static_cast<std::size_t>(whole.count * width));
  reader.read({whole}, [&](const auto&, const ElementRange& range, auto bytes) {
    std::ranges::copy(bytes, all.begin() + range.begin * width);
  });
  return all;
}

}  // namespace zero::tool
