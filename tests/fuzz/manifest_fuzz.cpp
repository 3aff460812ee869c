// The manifest of a checkpoint, and the header of one of its files: if the text is accepted, it can
// be written and read again, and has every element once.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "zero/base/error.h"
#include "zero/checkpoint/format/manifest.h"

using namespace zero::checkpoint;

constexpr std::int64_t most_elements = 1 << 20;

namespace {

// Reads the text as the header of the only file of a parameter and its state.
void read_as_header(std::string_view text) {
  Manifest manifest;
  manifest.save_id = "7";
  manifest.states = {"m"};
  manifest.parameters = {{.name = "a", .shape = {3, 5}, .dtype = "F32"}};
  const std::string header = std::string(length_bytes, ' ').append(text);
  manifest.files = {{.name = "one",
                     .bytes = static_cast<std::int64_t>(header.size()) + 120,
                     .chunks = std::vector<Digest>(1)}};
  try {
    const std::vector<Shard> shards = parse_shard_headers("input", manifest, {header});
    std::int64_t elements = 0;
    for (const FileEntry& entry : shards.at(0).entries) elements += entry.range.count;
    require(elements == 30);
  } catch (const zero::LoadError&) {
    // Refused.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_as_header(std::string_view(reinterpret_cast<const char*>(data), size));
  try {
    const Manifest manifest =
        parse_manifest("input", std::string_view(reinterpret_cast<const char*>(data), size));
    const std::string text = format_manifest(manifest);
    require(format_manifest(parse_manifest("input", text)) == text);
    std::vector<ElementRange> ranges;
    for (int p = 0; p < static_cast<int>(manifest.parameters.size()); ++p)
      for (int kind = 0; kind <= static_cast<int>(manifest.states.size()); ++kind) {
        const std::int64_t elements = manifest.parameters[static_cast<std::size_t>(p)].elements();
        if (elements > 0 && elements < most_elements &&
            manifest.has(manifest.parameters[static_cast<std::size_t>(p)], kind))
          ranges.push_back({p, kind, 0, elements});
      }
    Manifest one = manifest;
    const std::vector<FileEntry> entries = entries_of(one, ranges);
    const std::string header = format_shard_header(one, entries);
    one.files.assign(1, {.name = "one", .bytes = static_cast<std::int64_t>(header.size())});
    one.files[0].bytes += entries.empty() ? 0 : entries.back().end();
    one.files[0].chunks.resize(static_cast<std::size_t>(
        (one.files[0].bytes - static_cast<std::int64_t>(header.size()) + chunk_bytes - 1) /
        chunk_bytes));
    require(parse_shard_headers("input", one, {header}).at(0).entries == entries);
    for (const ManifestFile& file : manifest.files)
      require(file.name.find('/') == std::string::npos && file.name.front() != '.');
  } catch (const zero::LoadError&) {
    // Refused.
  }
  return 0;
}
