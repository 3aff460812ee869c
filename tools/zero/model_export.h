// Export of a checkpoint's parameters as a Hugging Face model: one safetensors file, or several and
// an index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/checkpoint/checkpoint_reader.h"

namespace zero::tool {

// dtype: "fp32", "bf16", "fp16", or "" for the compute dtype of the run (frozen parameters as
// stored). max_file_bytes 0: one file. Holds a piece of one tensor in memory at a time. Returns the
// files' paths.
std::vector<std::string> export_model(checkpoint::CheckpointReader& reader,
                                      const std::string& directory, const std::string& dtype,
                                      std::int64_t max_file_bytes);

// Returns all bytes of a buffer or parameter as stored.
std::vector<std::byte> bytes_of(const checkpoint::CheckpointReader& reader, int parameter);

}  // namespace zero::tool
