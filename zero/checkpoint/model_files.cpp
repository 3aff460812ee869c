#include "zero/checkpoint/model_files.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <set>
#include <utility>

#include "zero/base/error.h"
#include "zero/checkpoint/file_layer.h"
#include "zero/checkpoint/manifest_json.h"
#include "zero/checkpoint/safetensors_header.h"

namespace zero::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t max_index_bytes = std::int64_t{64} << 20;

std::int64_t bytes_of(const TensorEntry& tensor) {
  return tensor.elements() * bits_of(tensor.dtype).value_or(0) / 8;
}

std::int64_t bytes_of(const ModelFile& file) {
  std::int64_t bytes = 0;
  for (const TensorEntry& tensor : file.tensors) bytes += bytes_of(tensor);
  return bytes;
}

std::string shard_name(std::size_t number, std::size_t count, int generation) {
  char name[80], mark[24] = "";
  if (generation > 1) std::snprintf(mark, sizeof mark, "g%d-", generation);
  std::snprintf(name, sizeof name, "model-%s%05zu-of-%05zu.safetensors", mark, number, count);
  return name;
}

// Also what is left of one that was not written to its end.
bool is_shard(const std::string& name) {
  static const std::regex pattern(
      R"(model-(g[0-9]+-)?[0-9]{5,}-of-[0-9]{5,}\.safetensors(\.tmp-[0-9]+-[0-9]+)?)");
  return std::regex_match(name, pattern);
}

// Tensor -> file.
std::map<std::string, std::string> parse_index(const std::string& path) {
  const fs::path location(path);
  const std::string folder = location.has_parent_path() ? location.parent_path().string() : ".";
  const Json document = parse_json(
      path, Directory::open(folder).read_text(location.filename().string(), max_index_bytes));
  const std::map<std::string, std::string> weight_map =
      Fields(path, "", document).texts("weight_map");
  for (const auto& [tensor, file] : weight_map)
    if (const std::string wrong = file_name_problem(file); !wrong.empty())
      throw LoadError(path + ": the file name " + in_quotes(file) + " " + wrong);
  return weight_map;
}

}  // namespace

std::vector<ModelFile> divide_model(const std::vector<TensorEntry>& tensors,
                                    std::int64_t max_file_bytes) {
  std::vector<ModelFile> files(1);
  std::int64_t filled = 0;
  for (const TensorEntry& tensor : tensors) {
    const std::int64_t bytes = bytes_of(tensor);
    if (max_file_bytes > 0 && filled > 0 && filled + bytes > max_file_bytes) {
      files.emplace_back();
      filled = 0;
    }
    files.back().tensors.push_back(tensor);
    filled += bytes;
  }
  for (std::size_t i = 0; i < files.size(); ++i)
    files[i].name = files.size() == 1 ? single_model_name : shard_name(i + 1, files.size(), 1);
  return files;
}

ModelWriter::ModelWriter(std::string directory, std::vector<ModelFile> files)
    : directory_(std::move(directory)), files_(std::move(files)) {
  std::error_code failed;
  fs::create_directories(directory_, failed);
  if (failed) throw SaveError("cannot create directory " + directory_ + ": " + failed.message());
  if (files_.size() > 1) avoid_names_in_use();
}

void ModelWriter::avoid_names_in_use() {
  std::set<std::string> in_use;
  try {
    const std::string index = fs::canonical(directory_).string() + "/" + model_index_name;
    if (fs::exists(index))
      for (const auto& [tensor, file] : parse_index(index)) in_use.insert(file);
  } catch (const LoadError&) {
    // Nothing loads by an index that cannot be read.
  }
  const auto taken = [&](const ModelFile& file) { return in_use.contains(file.name); };
  for (int generation = 2; std::any_of(files_.begin(), files_.end(), taken); ++generation)
    for (std::size_t i = 0; i < files_.size(); ++i)
      files_[i].name = shard_name(i + 1, files_.size(), generation);
}

void ModelWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (!writer_) {
    const ModelFile& file = files_.at(current_);
    left_ = bytes_of(file);
    writer_ =
        std::make_unique<SafetensorsWriter>(directory_ + "/" + file.name, file.tensors,
                                            std::map<std::string, std::string>{{"format", "pt"}});
  }
  writer_->write(bytes);
  left_ -= static_cast<std::int64_t>(bytes.size());
  if (left_ > 0) return;
  std::exchange(writer_, nullptr)->finish();
  ++current_;
}

void ModelWriter::write_index() {
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  std::int64_t total = 0;
  for (const ModelFile& file : files_) {
    total += bytes_of(file);
    for (const TensorEntry& tensor : file.tensors) index["weight_map"][tensor.name] = file.name;
  }
  index["metadata"]["total_size"] = total;
  const std::string text = index.dump(2) + "\n";
  AtomicFile out(directory_ + "/" + model_index_name);
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

std::vector<std::string> ModelWriter::finish() {
  if (writer_) writer_->finish();  // throws: a tensor is not whole
  // A model without any element.
  for (; current_ < files_.size(); ++current_)
    SafetensorsWriter(directory_ + "/" + files_[current_].name, files_[current_].tensors,
                      {{"format", "pt"}})
        .finish();
  std::vector<std::string> paths;
  for (const ModelFile& file : files_) paths.push_back(directory_ + "/" + file.name);
  if (files_.size() > 1) {
    write_index();
    paths.push_back(directory_ + "/" + model_index_name);
  }
  try {
    remove_others();
  } catch (const Error& error) {
    throw SaveError(directory_ + ": an earlier model in it cannot be removed: " + error.what());
  }
  return paths;
}

// First what loaders look for by name, so that nothing names a file that is gone.
void ModelWriter::remove_others() const {
  const Directory directory = Directory::open(fs::canonical(directory_).string());
  directory.remove(files_.size() == 1 ? model_index_name : single_model_name);
  directory.sync();
  std::set<std::string> own;
  for (const ModelFile& file : files_) own.insert(file.name);
  for (const std::string& name : directory.names())
    if (is_shard(name) && !own.contains(name)) directory.remove(name);
}

ModelReader::ModelReader(const std::string& path) : path_(path) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown))
    path_ += fs::exists(fs::path(path) / model_index_name, unknown)
                 ? std::string("/") + model_index_name
                 : std::string("/") + single_model_name;
  if (!path_.ends_with(".json")) {
    files_[path_] = std::make_unique<SafetensorsReader>(path_);
    return;
  }
  const fs::path folder = fs::path(path_).parent_path();
  for (const auto& [tensor, file] : parse_index(path_)) {
    auto& reader = files_[file];
    if (!reader) reader = std::make_unique<SafetensorsReader>((folder / file).string());
    if (reader->find(tensor) == nullptr)
      throw LoadError(reader->path() + ": has no tensor " + in_quotes(tensor) +
                      ", which the index says is there");
    where_[tensor] = reader.get();
  }
  if (files_.empty()) throw LoadError(path_ + ": names no tensor");
}

std::size_t ModelReader::tensor_count() const {
  return where_.empty() ? files_.begin()->second->tensors().size() : where_.size();
}

const SafetensorsReader& ModelReader::file_of(std::string_view name) const {
  const auto found = where_.find(name);
  return found == where_.end() ? *files_.begin()->second : *found->second;
}

const TensorEntry* ModelReader::find(std::string_view name) const {
  if (!where_.empty() && !where_.contains(name)) return nullptr;
  return file_of(name).find(name);
}

std::span<const std::byte> ModelReader::bytes(std::string_view name) const {
  const SafetensorsReader& file = file_of(name);
  return file.bytes(*file.find(name));
}

void ModelReader::read(std::string_view name, std::int64_t first, std::span<float> values) const {
  const SafetensorsReader& file = file_of(name);
  file.read(*file.find(name), first, values);
}

}  // namespace zero::checkpoint
