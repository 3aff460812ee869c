#include "tools/zero/model_export.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "zero/base/dtype.h"
#include "zero/base/error.h"
#include "zero/checkpoint/atomic_file.h"
#include "zero/checkpoint/safetensors.h"

namespace zero::tool {
namespace {

using checkpoint::Manifest;
using checkpoint::ManifestParameter;
using checkpoint::SafetensorsWriter;
using checkpoint::TensorEntry;

constexpr std::int64_t piece_elements = std::int64_t{1} << 20;

struct OutputFile {
  std::string name;
  std::vector<int> parameters;
  std::int64_t bytes = 0;
};

DType named(const std::string& dtype) {
  if (dtype == "fp32") return DType::fp32;
  if (dtype == "bf16") return DType::bf16;
  if (dtype == "fp16") return DType::fp16;
  throw ConfigError("--dtype " + dtype + ": expected fp32, bf16 or fp16");
}

DType stored(const ManifestParameter& parameter) {
  return parameter.dtype == "BF16"  ? DType::bf16
         : parameter.dtype == "F16" ? DType::fp16
                                    : DType::fp32;
}

std::vector<DType> output_dtypes(const Manifest& manifest, const std::string& dtype) {
  const auto computed = manifest.equality.find("compute_dtype");
  const bool known = computed != manifest.equality.end();
  const DType default_dtype = known ? named(computed->second) : DType::fp32;
  std::vector<DType> dtypes;
  for (const ManifestParameter& parameter : manifest.parameters)
    dtypes.push_back(!dtype.empty()        ? named(dtype)
                     : parameter.trainable ? default_dtype
                                           : stored(parameter));
  return dtypes;
}

// Filled in order; a tensor larger than the limit gets a file of its own.
std::vector<OutputFile> divided(const Manifest& manifest, const std::vector<DType>& dtypes,
                                std::int64_t limit) {
  std::vector<OutputFile> files(1);
  for (std::size_t p = 0; p < manifest.parameters.size(); ++p) {
    const std::int64_t bytes = manifest.parameters[p].elements() * size_of(dtypes[p]);
    if (limit > 0 && files.back().bytes > 0 && files.back().bytes + bytes > limit)
      files.emplace_back();
    files.back().parameters.push_back(static_cast<int>(p));
    files.back().bytes += bytes;
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    char name[64] = "model.safetensors";
    if (files.size() > 1)
      std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, files.size());
    files[i].name = name;
    // Other readers need every tensor aligned to its element.
    std::stable_sort(files[i].parameters.begin(), files[i].parameters.end(), [&](int a, int b) {
      return size_of(dtypes[static_cast<std::size_t>(a)]) >
             size_of(dtypes[static_cast<std::size_t>(b)]);
    });
  }
  return files;
}

template <class T>
void write_as(SafetensorsWriter& writer, std::span<const float> values) {
  std::vector<T> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), from_float<T>);
  writer.write(std::as_bytes(std::span(rounded)));
}

void write_tensor(checkpoint::TensorReader& reader, int parameter, DType dtype,
                  SafetensorsWriter& writer) {
  const std::int64_t elements =
      reader.manifest().parameters[static_cast<std::size_t>(parameter)].elements();
  std::vector<float> values;
  for (std::int64_t first = 0; first < elements; first += piece_elements) {
    values.resize(static_cast<std::size_t>(std::min(piece_elements, elements - first)));
    reader.read(parameter, 0, first, values);
    if (dtype == DType::fp32)
      writer.write(std::as_bytes(std::span(values)));
    else if (dtype == DType::bf16)
      write_as<bf16>(writer, values);
    else
      write_as<fp16>(writer, values);
  }
}

void write_file(checkpoint::TensorReader& reader, const std::string& path, const OutputFile& file,
                const std::vector<DType>& dtypes) {
  std::vector<TensorEntry> tensors;
  for (const int p : file.parameters) {
    const auto number = static_cast<std::size_t>(p);
    const ManifestParameter& parameter = reader.manifest().parameters[number];
    tensors.push_back(
        {parameter.name, checkpoint::safetensors_name(dtypes[number]), parameter.shape, 0, 0});
  }
  SafetensorsWriter writer(path, std::move(tensors), {{"format", "pt"}});
  for (const int p : file.parameters)
    write_tensor(reader, p, dtypes[static_cast<std::size_t>(p)], writer);
  writer.finish();
}

std::string index_of(const Manifest& manifest, const std::vector<OutputFile>& files) {
  nlohmann::json index = {{"metadata", {{"total_size", 0}}},
                          {"weight_map", nlohmann::json::object()}};
  std::int64_t total = 0;
  for (const OutputFile& file : files) {
    total += file.bytes;
    for (const int p : file.parameters)
      index["weight_map"][manifest.parameters[static_cast<std::size_t>(p)].name] = file.name;
  }
  index["metadata"]["total_size"] = total;
  return index.dump(2) + "\n";
}

}  // namespace

std::int64_t parse_size(const std::string& text) {
  if (text.empty()) return 0;
  static constexpr std::pair<const char*, double> units[] = {
      {"", 1},      {"B", 1},        {"KB", 1e3},        {"MB", 1e6},          {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
  std::size_t used = 0;
  double number = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  for (const auto& [unit, factor] : units)
    if (used > 0 && text.substr(used) == unit && number > 0 && number * factor < 9e18)
      return std::max<std::int64_t>(1, std::llround(number * factor));
  throw ConfigError("--max-shard-size " + text + ": expected a size such as 500MB or 5GB");
}

std::vector<std::string> export_model(checkpoint::TensorReader& reader,
                                      const std::string& directory, const std::string& dtype,
                                      std::int64_t max_file_bytes) {
  const std::vector<DType> dtypes = output_dtypes(reader.manifest(), dtype);
  const std::vector<OutputFile> files = divided(reader.manifest(), dtypes, max_file_bytes);
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) throw SaveError("cannot create directory " + directory + ": " + failed.message());
  std::vector<std::string> paths;
  for (const OutputFile& file : files) {
    paths.push_back(directory + "/" + file.name);
    write_file(reader, paths.back(), file, dtypes);
  }
  if (files.size() == 1) return paths;
  paths.push_back(directory + "/model.safetensors.index.json");
  const std::string index = index_of(reader.manifest(), files);
  checkpoint::AtomicFile out(paths.back());
  out.write(std::as_bytes(std::span(index)));
  out.commit();
  return paths;
}

}  // namespace zero::tool
