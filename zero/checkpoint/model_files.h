// A model in one or several safetensors files, in Hugging Face's layout: model.safetensors, or
// model-00001-of-00003.safetensors and so on with model.safetensors.index.json, the map from
// tensors to files. Loaders use the index, so files named there are never written to: if an earlier
// model has these names, the next is written to model-g2-00001-of-00003.safetensors and so on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "zero/checkpoint/safetensors_file.h"

namespace zero::checkpoint {

inline constexpr const char* single_model_name = "model.safetensors";
inline constexpr const char* model_index_name = "model.safetensors.index.json";

// Writes tensors in order. At any interruption, the directory holds either the previous or the new
// model, whole: each file appears when complete and on disk, the index after all named files, and
// the previous model's files are removed last. Throws SaveError. Call write() for all data, then
// finish().
class ModelWriter {
 public:
  // Files have at most this many bytes of data (0: no limit); a larger tensor gets a file of its
  // own. Throws UsageError like place_tensors().
  ModelWriter(const std::string& directory, const std::vector<TensorEntry>& tensors,
              std::int64_t max_file_bytes);
  ~ModelWriter();  // without finish(): removes the unfinished file
  ModelWriter(const ModelWriter&) = delete;
  ModelWriter& operator=(const ModelWriter&) = delete;

  // Appends to the current tensor; no piece spans two.
  void write(std::span<const std::byte> bytes);
  // Writes the index last; then removes an earlier model, and leftovers of interrupted exports.
  // Returns the paths of all files.
  std::vector<std::string> finish();

 private:
  struct ModelFile {
    std::string name;
    std::vector<TensorEntry> tensors;
  };

  void name_files();
  void begin_file();
  void end_file();
  void write_index();
  void remove_others() const;

  std::string path_;
  Directory directory_;
  std::vector<ModelFile> files_;
  std::size_t current_ = 0;
  std::int64_t left_ = 0;  // bytes of the current file's data
  std::string temporary_;  // the name of the current file until complete
  std::unique_ptr<SafetensorsWriter> writer_;
};

// A model to read: a file, an index, or a directory that contains either. Throws LoadError.
class ModelReader {
 public:
  explicit ModelReader(const std::string& path);

  const std::string& path() const { return path_; }
  std::size_t tensor_count() const { return tensors_.size(); }
  std::vector<std::string> names() const;  // sorted
  // Null if there is none.
  const TensorEntry* find(std::string_view name) const;
  // Reads elements [first, first + values.size()) of an existing tensor, as fp32.
  void read(std::string_view name, std::int64_t first, std::span<float> values) const {
    const Tensor& tensor = tensors_.find(name)->second;
    tensor.file->read(*tensor.entry, first, values);
  }
  // Reads bytes of a tensor as stored in the file, from byte `first` on.
  void read_bytes(std::string_view name, std::int64_t first, std::span<std::byte> bytes) const {
    const Tensor& tensor = tensors_.find(name)->second;
    tensor.file->read_bytes(*tensor.entry, first, bytes);
  }

 private:
  struct Tensor {
    const SafetensorsReader* file;
    const TensorEntry* entry;
  };

  std::string path_;
  std::map<std::string, SafetensorsReader> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace zero::checkpoint
