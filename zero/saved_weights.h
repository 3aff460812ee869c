// Reads whole weights, of a checkpoint or of safetensors files, in a single process: without ranks,
// and with every digest checked before data are used. Local, in host memory. Throws LoadError. Part
// of no other header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

// The parameters and buffers of a checkpoint.
class SavedWeights {
 public:
  // Opens the checkpoint of the tag, or without a tag the newest valid checkpoint of the directory.
  // Throws UsageError if there is none.
  explicit SavedWeights(const std::string& directory, const std::string& tag = "");
  ~SavedWeights();

  struct Entry {
    std::vector<std::string> names;  // several for a tied or shared parameter
    std::vector<std::int64_t> shape;
    std::string dtype;  // of read(), as named in safetensors files; F32 for BF16 and F16
    bool is_trained = false, is_buffer = false;

    std::int64_t elements = 0;
  };
  const std::vector<Entry>& entries() const;
  // For the user: damaged checkpoints that were passed over.
  const std::vector<std::string>& notices() const;
  // SaveOptions::program_state.
  std::string program_state() const;

  // Reads some entries whole. `memory` receives the elements in the entry's dtype.
  struct Wanted {
    std::size_t entry;
    std::span<std::byte> memory;
  };
  void read(const std::vector<Wanted>& wanted) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// A model in safetensors: a file, an index, or a directory with either.
class SavedModel {
 public:
  explicit SavedModel(const std::string& path);
  ~SavedModel();

  bool has(std::string_view name) const;
  // Whether two tensors of the model are equal in dtype, shape and every byte.
  bool are_equal(const std::string& name, const std::string& other) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace zero
