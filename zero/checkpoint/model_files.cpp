#include "zero/checkpoint/model_files.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <regex>
#include <set>

#include "zero/base/error.h"
#include "zero/checkpoint/format/manifest.h"
#include "zero/checkpoint/model_directory.h"

namespace zero::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t max_index_bytes = std::int64_t{64} << 20;

std::string shard_name(std::size_t number, std::size_t count, int generation) {
  char name[80], mark[24] = "";
  if (generation > 1) std::snprintf(mark, sizeof mark, "g%d-", generation);
  std::snprintf(name, sizeof name, "model-%s%05zu-of-%05zu.safetensors", mark, number, count);
  return name;
}

// Also matches temporary files of interrupted writes.
bool is_shard(const std::string& name) {
  static const std::regex pattern(
      R"(model-(g[0-9]+-)?[0-9]{5,}-of-[0-9]{5,}\.safetensors(\.tmp-[0-9]+-[0-9]+)?)");
  return std::regex_match(name, pattern);
}

// In the same directory as the final file.
std::string temporary_of(const std::string& name) {
  return name + ".tmp-" + std::to_string(::getpid()) + "-0";
}

// Returns tensor -> file.
std::map<std::string, std::string> read_index(const std::string& path) {
  auto weight_map = parse_index(path, File::open(path).read_text(max_index_bytes));
  for (const auto& [tensor, file] : weight_map)
    if (const std::string wrong = file_name_problem(file); !wrong.empty())
      throw LoadError(path + ": the file name " + in_quotes(file) + " " + wrong);
  return weight_map;
}

// Returns a checkpoint that is or contains the directory; empty if there is none.
std::string checkpoint_around(const std::string& directory) {
  std::error_code unknown;
  fs::path path = fs::weakly_canonical(directory, unknown);
  for (; !path.empty(); path = path.parent_path()) {
    if (fs::exists(path / manifest_name, unknown) &&
        fs::exists(path / manifest_digest_name, unknown))
      return path.string();
    if (path == path.parent_path()) break;
  }
  return "";
}

// Opens the directory, through any link, or creates it.
Directory model_directory(const std::string& directory) {
  check_model_directory(directory);
  return Directory::make_path(fs::weakly_canonical(directory).string());
}

}  // namespace

ModelWriter::ModelWriter(const std::string& directory, const std::vector<TensorEntry>& tensors,
                         std::int64_t max_file_bytes)
    : path_(directory), directory_(model_directory(directory)), files_(1) {
  std::int64_t filled = 0;
  for (const TensorEntry& tensor : tensors) {
    std::string ignored;  // place_tensors() reports the problem
    const std::int64_t bytes = checked_bytes(tensor, ignored);
    if (max_file_bytes > 0 && filled > 0 && filled + bytes > max_file_bytes) {
      files_.emplace_back();
      filled = 0;
    }
    files_.back().tensors.push_back(tensor);
    filled += bytes;
  }
  name_files();
  for (ModelFile& file : files_) place_tensors(path_ + "/" + file.name, file.tensors);
}

ModelWriter::~ModelWriter() {
  try {
    if (!temporary_.empty()) directory_.remove(temporary_);
  } catch (...) {
    // The next export removes the file.
  }
}

// Chooses names that are not in an earlier model's index.
void ModelWriter::name_files() {
  files_[0].name = single_model_name;
  if (files_.size() == 1) return;
  std::set<std::string> in_use;
  try {
    for (const auto& [tensor, file] : read_index(directory_.path() + "/" + model_index_name))
      in_use.insert(file);
  } catch (const LoadError&) {
    // No loader can use an unreadable index.
  }
  bool taken = true;
  for (int generation = 1; taken; ++generation) {
    taken = false;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      files_[i].name = shard_name(i + 1, files_.size(), generation);
      taken = taken || in_use.contains(files_[i].name);
    }
  }
}

void ModelWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (!writer_) begin_file();
  writer_->write(bytes);
  left_ -= std::ssize(bytes);
  if (left_ <= 0) end_file();
}

void ModelWriter::begin_file() {
  const ModelFile& file = files_.at(current_);
  const SafetensorsHeader header{file.tensors, {{"format", "pt"}}};
  left_ = header.data_bytes();
  temporary_ = temporary_of(file.name);
  directory_.remove(temporary_);
  writer_ = std::make_unique<SafetensorsWriter>(directory_.create(temporary_),
                                                format_header(header), left_);
}

void ModelWriter::end_file() {
  writer_->finish();
  writer_.reset();
  directory_.replace(files_[current_++].name, temporary_);
  temporary_.clear();
}

void ModelWriter::write_index() {
  std::map<std::string, std::string> file_of_tensor;
  std::int64_t bytes = 0;
  for (const ModelFile& file : files_) {
    for (const TensorEntry& tensor : file.tensors) file_of_tensor[tensor.name] = file.name;
    bytes += file.tensors.back().end;
  }
  const std::string temporary = temporary_of(model_index_name);
  directory_.remove(temporary);
  directory_.write_text(temporary, format_index(file_of_tensor, bytes));
  directory_.replace(model_index_name, temporary);
}

std::vector<std::string> ModelWriter::finish() {
  if (writer_) writer_->finish();  // throws if a tensor is incomplete
  // For a model without any element.
  for (; current_ < files_.size(); end_file()) begin_file();
  std::vector<std::string> paths;
  for (const ModelFile& file : files_) paths.push_back(path_ + "/" + file.name);
  if (files_.size() > 1) {
    write_index();
    paths.push_back(path_ + "/" + model_index_name);
  }
  try {
    remove_others();
  } catch (const Error& error) {
    throw SaveError(path_ + ": an earlier model in it cannot be removed: " + error.what());
  }
  return paths;
}

// Removes first the file that loaders open by name, so that no index refers to removed files.
void ModelWriter::remove_others() const {
  directory_.remove(files_.size() == 1 ? model_index_name : single_model_name);
  directory_.sync();
  std::set<std::string> own;
  for (const ModelFile& file : files_) own.insert(file.name);
  for (const std::string& name : directory_.names())
    if (is_shard(name) && !own.contains(name)) directory_.remove(name);
}

namespace {

// Says what the folder has in place of a model in safetensors.
[[noreturn]] void refuse_folder(const std::string& path) {
  std::string found;
  std::error_code unknown;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, unknown))
    for (const char* ending : {".bin", ".pt", ".pth", ".gguf", ".safetensors"})
      if (entry.path().extension() == ending && found.empty()) found = entry.path().filename();
  throw LoadError(
      path + ": has neither " + single_model_name + " nor its index" +
      (found.empty() ? ""
       : found.ends_with(".safetensors")
           ? ", but " + in_quotes(found) + ": give that file"
           : ", but " + in_quotes(found) +
                 ": save the model as safetensors, with transformers by "
                 "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(other_folder)"));
}

}  // namespace

ModelReader::ModelReader(const std::string& path) : path_(path) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown))
    path_ += fs::exists(fs::path(path) / model_index_name, unknown)
                 ? std::string("/") + model_index_name
                 : std::string("/") + single_model_name;
  const auto open = [this](const std::string& file) -> const SafetensorsReader& {
    return files_.try_emplace(file, file).first->second;
  };
  if (path_ != path && !fs::exists(path_, unknown)) refuse_folder(path);
  if (!path_.ends_with(".json")) {
    const SafetensorsReader& file = open(path_);
    for (const TensorEntry& tensor : file.tensors()) tensors_[tensor.name] = {&file, &tensor};
    return;
  }
  for (const auto& [tensor, name] : read_index(path_)) {
    const SafetensorsReader& file = open((fs::path(path_).parent_path() / name).string());
    const TensorEntry* entry = file.find(tensor);
    if (entry == nullptr)
      throw LoadError(file.path() + ": has no tensor " + in_quotes(tensor) +
                      ", which the index says is there");
    tensors_[tensor] = {&file, entry};
  }
  if (tensors_.empty()) throw LoadError(path_ + ": names no tensor");
}

std::vector<std::string> ModelReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

const TensorEntry* ModelReader::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.entry;
}

}  // namespace zero::checkpoint

namespace zero {

void check_model_directory(const std::string& directory) {
  const std::string around = checkpoint::checkpoint_around(directory);
  if (!around.empty())
    throw ConfigError("the model cannot be written to " + directory + ": " + around +
                      " is a checkpoint, which later saves with --keep remove as a whole; choose a "
                      "directory outside of it");
}

}  // namespace zero
