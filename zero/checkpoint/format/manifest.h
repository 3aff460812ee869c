// The description of a checkpoint: parameters by name and shape, and files by size and digest. Only
// the headers of the files record the places of elements. Reading needs no information on stage,
// padding or rank count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zero/base/tensor_split.h"
#include "zero/checkpoint/format/digest.h"
#include "zero/checkpoint/format/safetensors.h"

namespace zero::checkpoint {

// Schema 1 repeated the headers of the files, and readers skip that. Schema 3 has parameters in
// parts; without these, schema 2 is written.
inline constexpr std::int64_t manifest_schema = 3;
inline constexpr const char* manifest_name = "manifest.json";
inline constexpr const char* manifest_digest_name = "manifest.xxh3";
inline constexpr const char* program_state_name = "program_state";  // file name
inline constexpr std::int64_t max_manifest_bytes = std::int64_t{256} << 20;
// Alignment of the data in a file of tensors, so that transfers may bypass the page cache.
inline constexpr std::size_t data_alignment = 4096;

struct ManifestParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype = {};  // as stored: the master's if trained, the model's if frozen
  bool trainable = true;
  std::vector<std::string> used_by = {};  // further units that share the parameter (tied tables)
  // Subset of the manifest's states, if the optimizer keeps different states for some parameters
  // (Muon); absent: all states of a trained parameter.
  std::optional<std::vector<std::string>> states = {};
  std::string states_dtype = "F32";
  bool buffer = false;  // not a parameter, but untrained state of a unit
  // For a buffer that is state of the optimizer, by rows or columns of a matrix: that parameter.
  std::string moment_of = {};
  // In checkpoints of versions with error feedback, for a rank's residues: the rank.
  std::optional<std::int64_t> of_rank = {};
  // For a frozen parameter that the checkpoint omits: the digest of the values, as stored.
  std::optional<Digest> left_out = {};
  // Further names of the values in exported models and for readers of whole weights.
  std::vector<std::string> also_named = {};
  // Under tensor parallelism: elements are stored part after part, see TensorSplit. Empty: one
  // part. Without a dimension: the program has not said which one is divided, and the shape has
  // one.
  std::optional<std::int64_t> split_dim = {};
  std::vector<std::int64_t> split_sizes = {};

  bool is_residues() const { return of_rank.has_value(); }
  std::int64_t elements() const { return elements_of(shape); }
  // Whether the order of the whole is unknown.
  bool only_in_parts() const { return !split_sizes.empty() && !split_dim; }
  TensorSplit split() const {
    if (split_sizes.empty()) return TensorSplit::none(shape);
    return {shape, static_cast<int>(split_dim.value_or(0)), split_sizes};
  }
};

// Elements [begin, begin + count) of a parameter (kind 0: the master weights, if any), or of
// optimizer state number kind - 1. Counted in the order of parts.
struct ElementRange {
  int parameter = 0, kind = 0;
  std::int64_t begin = 0, count = 0;

  std::int64_t end() const { return begin + count; }
  auto operator<=>(const ElementRange&) const = default;
};

struct ManifestFile {
  std::string name;
  std::int64_t bytes = 0;
  Digest digest = {};               // covers the header and the digests of the chunks
  std::vector<Digest> chunks = {};  // digests of the data
};

struct Manifest {
  std::string save_id, tag;
  std::int64_t sequence = 0;  // save number in this directory: orders saves without clocks
  std::int64_t step = 0, applied_steps = 0, skipped_in_a_row = 0, samples = 0;
  // Saved without frozen parameters, by a program that keeps no digests of these either.
  bool without_frozen = false;
  std::string optimizer, scheduler;
  std::vector<std::string> states;
  std::vector<ManifestParameter> parameters;
  std::vector<ManifestFile> files;
  std::map<std::string, std::string> client_state;
  std::vector<std::string> rank_states;  // any bytes, by rank; empty: there are none
  // The grid of ranks that saved: the sizes of its axes, by name; empty in older checkpoints.
  std::map<std::string, std::int64_t> grid;
  // The file program_state, if any.
  std::int64_t program_state_bytes = 0;
  std::optional<Digest> program_state_digest;
  std::map<std::string, std::string> loss_scaler;  // state of a dynamic scaler; otherwise empty
  std::string config;                              // the resolved config, a line per value
  // Values that must be equal for a continued run to be bitwise identical.
  std::map<std::string, std::string> equality;

  // Whether the parameter has entries of this kind.
  bool has(const ManifestParameter& parameter, int kind) const;
  const std::string& dtype_of(const ElementRange& range) const {
    const ManifestParameter& parameter = parameters[range.parameter];
    return range.kind > 0 ? parameter.states_dtype : parameter.dtype;
  }
  std::int64_t width_of(const ElementRange& range) const {  // bytes per element
    return bits_of(dtype_of(range)).value_or(0) / 8;
  }
  // "name@offset", "name:exp_avg@offset".
  std::string name_of(const ElementRange& range) const;
  std::int64_t data_bytes() const;  // total of all parameters and states
  // The size of an axis of the grid that saved, by name.
  std::int64_t ranks_of(const char* axis) const {
    const auto found = grid.find(axis);
    return found == grid.end() ? 1 : std::max<std::int64_t>(1, found->second);
  }
};

std::string format_manifest(const Manifest& manifest);
// Checks every field. Throws LoadError starting with `path`.
Manifest parse_manifest(const std::string& path, std::string_view text);
// The text of manifest.xxh3.
std::string format_manifest_digest(std::string_view manifest);

// Elements in a file, and the place of their bytes in the data.
struct FileEntry {
  ElementRange range;
  std::int64_t width;  // bytes of an element
  std::int64_t begin;

  std::int64_t end() const { return begin + range.count * width; }
  bool operator==(const FileEntry&) const = default;
};

// Entries for the ranges, in order and without gaps.
std::vector<FileEntry> entries_of(const Manifest& manifest,
                                  const std::vector<ElementRange>& ranges);

// A file of tensors according to the header; entries in the order of the data, without gaps.
struct Shard {
  std::int64_t header_bytes = 0;  // including the 8 bytes of the header's length
  std::vector<FileEntry> entries;
};

// Returns the start of a file with these entries.
std::string format_shard_header(const Manifest& manifest, const std::vector<FileEntry>& entries);
// Parses the headers of all files, and checks each against the manifest; every element of every
// parameter and state must occur exactly once. Throws LoadError starting with `path`, the
// checkpoint's.
std::vector<Shard> parse_shard_headers(const std::string& path, const Manifest& manifest,
                                       const std::vector<std::string>& headers);

}  // namespace zero::checkpoint
