// What a checkpoint says about itself: parameters by name and shape, files by size and digest, and
// which elements of which parameter lie where. Nothing in it about stage, padding or rank count is
// needed to read the rest.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zero/checkpoint/digest.h"
#include "zero/checkpoint/format/safetensors.h"

namespace zero::checkpoint {

inline constexpr std::int64_t manifest_schema = 1;
inline constexpr const char* manifest_name = "manifest.json";
inline constexpr const char* manifest_digest_name = "manifest.xxh3";
inline constexpr std::int64_t max_manifest_bytes = std::int64_t{256} << 20;

struct ManifestParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype;  // as stored: the master's for what is trained, its own for what is frozen
  bool trainable = true;
  std::vector<std::string> used_by;  // other units that share it (tied tables)
  // Of the manifest's states, where the optimizer keeps others for other parameters (Muon); absent:
  // all of them, if it is trained.
  std::optional<std::vector<std::string>> states = {};
  std::string states_dtype = "F32";
  bool buffer = false;  // no parameter: what a unit keeps and does not train
  // Of a frozen parameter that the checkpoint does without: the digest of its values, as stored.
  std::optional<Digest> left_out = {};

  std::int64_t elements() const { return elements_of(shape); }
};

// Elements [begin, begin + count) of a parameter (kind 0: its master weights where it has some), or
// of optimizer state number kind - 1.
struct ElementRange {
  int parameter = 0, kind = 0;
  std::int64_t begin = 0, count = 0;

  std::int64_t end() const { return begin + count; }
  auto operator<=>(const ElementRange&) const = default;
};

// A safetensors file; entries in the order of their data, without gaps.
struct ManifestFile {
  std::string name;
  std::int64_t bytes = 0, header_bytes = 0;  // the 8 bytes of the header's length included
  Digest digest;
  std::vector<Digest> chunks;
  std::vector<ElementRange> entries;

  std::int64_t data_bytes() const { return bytes - header_bytes; }
};

struct Manifest {
  std::string save_id, tag;
  std::int64_t sequence = 0;  // of saves into this directory: orders them, whatever the clock says
  std::int64_t step = 0, applied_steps = 0, skipped_in_a_row = 0, samples = 0;
  std::string optimizer, scheduler;
  std::vector<std::string> states;
  std::vector<ManifestParameter> parameters;
  std::vector<ManifestFile> files;
  std::map<std::string, std::string> client_state;
  std::vector<std::string> rank_states;            // any bytes, by rank; empty: there are none
  std::map<std::string, std::string> loss_scaler;  // state of a dynamic one; else empty
  std::string config;                              // the resolved one, a line per value
  // What must be equal for a continued run to give equal bits.
  std::map<std::string, std::string> equality;

  int find(std::string_view name) const;  // -1: none
  // Whether the parameter has entries of this kind.
  bool has(const ManifestParameter& parameter, int kind) const;
  const std::string& dtype_of(const ElementRange& range) const;
  std::int64_t width_of(const ElementRange& range) const;  // bytes per element
  // "name@offset", "name:exp_avg@offset".
  std::string name_of(const ElementRange& range) const;
  std::int64_t data_bytes() const;  // of all files
};

std::string format_manifest(const Manifest& manifest);
// Every field checked, every element of every parameter and state present exactly once. Throws
// LoadError starting with `path`.
Manifest parse_manifest(const std::string& path, std::string_view text);
// The text of manifest.xxh3.
std::string format_manifest_digest(std::string_view manifest);

// The entries of a file as safetensors has them, and the header of the file that is to be written.
std::vector<TensorEntry> tensor_entries(const Manifest& manifest, const ManifestFile& file);
std::string shard_header(const Manifest& manifest, const ManifestFile& file);
// Fills in bytes and header_bytes from the entries.
void set_sizes(const Manifest& manifest, ManifestFile& file);

}  // namespace zero::checkpoint
