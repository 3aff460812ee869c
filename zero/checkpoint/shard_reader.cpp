#include "zero/checkpoint/shard_reader.h"

#include <algorithm>
#include <future>
#include <string>
#include <tuple>

#include "zero/base/error.h"

namespace zero::checkpoint {
namespace {

// What the file has of a wanted range, and its bytes of the data section.
struct Want {
  ElementRange range;
  std::int64_t begin, end, width;
};

// The header is what any other reader of the file goes by: it must say what the manifest says.
void check_header(const File& file, const Manifest& manifest, const ManifestFile& expected) {
  const auto refuse = [&](const std::string& problem) {
    throw LoadError(file.path() + ": " + problem);
  };
  const std::int64_t size = file.size();
  if (size != expected.bytes)
    refuse("has " + std::to_string(size) + " bytes, the manifest says " +
           std::to_string(expected.bytes) +
           (size < expected.bytes ? ": cut short" : ": something was added"));
  std::string header(expected.header_bytes, '\0');
  file.read(0, std::as_writable_bytes(std::span(header)));
  const Digest found = file_digest(header, expected.chunks);
  if (found != expected.digest)
    refuse("its header (bytes 0 to " + std::to_string(expected.header_bytes) +
           ") is damaged or of another checkpoint: expected file digest " + expected.digest.hex() +
           ", found " + found.hex());
  SafetensorsHeader parsed = parse_header(
      file.path(), std::string_view(header).substr(length_bytes), expected.data_bytes());
  if (const std::string id = parsed.metadata["save_id"]; id != manifest.save_id)
    refuse("belongs to save " + in_quotes(id) + ", the manifest is of save " +
           in_quotes(manifest.save_id));
  if (parsed.tensors != tensor_entries(manifest, expected))
    refuse("its header and the manifest name other tensors");
}

std::string tensors_in(const Manifest& manifest, const ManifestFile& file, std::int64_t begin,
                       std::int64_t end) {
  std::vector<std::string> names;
  for (const TensorEntry& tensor : tensor_entries(manifest, file))
    if (tensor.begin < end && tensor.end > begin) names.push_back(in_quotes(tensor.name));
  return list_of(names, 3);
}

// In the order of the data.
std::vector<Want> find_in(const Manifest& manifest, const ManifestFile& file,
                          std::vector<ElementRange> wanted) {
  std::sort(wanted.begin(), wanted.end());
  std::vector<Want> wants;
  std::int64_t data = 0;  // where the entry begins
  for (const ElementRange& entry : file.entries) {
    const auto key = [](const ElementRange& range) {
      return std::tuple(range.parameter, range.kind, range.end());
    };
    const std::int64_t width = manifest.width_of(entry);
    auto range = std::ranges::upper_bound(
        wanted, std::tuple(entry.parameter, entry.kind, entry.begin), {}, key);
    for (; range != wanted.end() && range->parameter == entry.parameter &&
           range->kind == entry.kind && range->begin < entry.end();
         ++range) {
      const std::int64_t from = std::max(range->begin, entry.begin);
      const std::int64_t count = std::min(range->end(), entry.end()) - from;
      const std::int64_t begin = data + (from - entry.begin) * width;
      wants.push_back(
          {{entry.parameter, entry.kind, from, count}, begin, begin + count * width, width});
    }
    data += entry.count * width;
  }
  return wants;
}

// Numbers of the chunks that something is wanted of.
std::vector<std::int64_t> chunks_of(const std::vector<Want>& wants) {
  std::vector<std::int64_t> chunks;
  for (const Want& want : wants) {
    const std::int64_t next = chunks.empty() ? 0 : chunks.back() + 1;
    for (std::int64_t c = std::max(next, want.begin / chunk_bytes); c * chunk_bytes < want.end; ++c)
      chunks.push_back(c);
  }
  return chunks;
}

}  // namespace

void read_shard(const Directory& directory, const Manifest& manifest, const ManifestFile& file,
                std::vector<ElementRange> wanted, std::span<std::byte> buffer,
                const ElementSink& sink) {
  const std::vector<Want> wants = find_in(manifest, file, std::move(wanted));
  if (wants.empty() && !file.entries.empty()) return;
  File shard = directory.open_file(file.name);
  check_header(shard, manifest, file);
  shard.bypass_cache();
  const std::vector<std::int64_t> chunks = chunks_of(wants);
  const auto end_of = [&](std::int64_t chunk) {
    return std::min((chunk + 1) * chunk_bytes, file.data_bytes());
  };
  const auto memory_of = [&](std::size_t i) {
    return buffer.subspan(i % 2 * chunk_bytes, end_of(chunks[i]) - chunks[i] * chunk_bytes);
  };
  // The next chunk is read while one is looked at.
  std::future<void> reading;
  const auto start = [&](std::size_t i) {
    if (i < chunks.size())
      reading = std::async(i == 0 ? std::launch::deferred : std::launch::async, [&, i] {
        shard.read(file.header_bytes + chunks[i] * chunk_bytes, memory_of(i));
      });
  };
  start(0);
  std::size_t first = 0;  // all before it end before the chunk
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    reading.get();
    start(i + 1);
    const std::int64_t begin = chunks[i] * chunk_bytes, end = end_of(chunks[i]);
    const std::span<const std::byte> bytes = memory_of(i);
    const Digest found = digest_of(bytes);
    const Digest& expected = file.chunks[chunks[i]];
    if (found != expected)
      throw LoadError(shard.path() + ": bytes " + std::to_string(file.header_bytes + begin) +
                      " to " + std::to_string(file.header_bytes + end) + " are damaged (" +
                      tensors_in(manifest, file, begin, end) + "): expected digest " +
                      expected.hex() + ", found " + found.hex());
    for (std::size_t w = first; w < wants.size() && wants[w].begin < end; ++w) {
      const Want& want = wants[w];
      const std::int64_t from = std::max(want.begin, begin), to = std::min(want.end, end);
      sink({want.range.parameter, want.range.kind,
            want.range.begin + (from - want.begin) / want.width, (to - from) / want.width},
           bytes.subspan(from - begin, to - from));
    }
    while (first < wants.size() && wants[first].end <= end) ++first;
  }
}

}  // namespace zero::checkpoint
