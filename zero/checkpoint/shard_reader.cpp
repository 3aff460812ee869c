#include "zero/checkpoint/shard_reader.h"

#include <algorithm>
#include <future>
#include <optional>
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

std::string header_of(File& file, const ManifestFile& expected) {
  const std::int64_t size = file.size();
  if (size != expected.bytes)
    throw LoadError(file.path() + ": has " + std::to_string(size) + " bytes, the manifest says " +
                    std::to_string(expected.bytes) +
                    (size < expected.bytes ? ": cut short" : ": something was added"));
  std::string header(static_cast<std::size_t>(expected.header_bytes), '\0');
  file.read(0, std::as_writable_bytes(std::span(header)));
  const Digest found = file_digest(header, expected.chunks);
  if (found != expected.digest)
    throw LoadError(file.path() + ": its header (bytes 0 to " +
                    std::to_string(expected.header_bytes) +
                    ") is damaged or of another checkpoint: expected file digest " +
                    expected.digest.hex() + ", found " + found.hex());
  return header;
}

// The header is what any other reader of the file goes by: it must say what the manifest says.
void check_header(File& file, const Manifest& manifest, const ManifestFile& expected) {
  const std::string header = header_of(file, expected);
  const SafetensorsHeader parsed = parse_header(
      file.path(), std::string_view(header).substr(length_bytes), expected.data_bytes());
  const auto id = parsed.metadata.find("save_id");
  if (id == parsed.metadata.end() || id->second != manifest.save_id)
    throw LoadError(file.path() + ": belongs to save " +
                    (id == parsed.metadata.end() ? "(none)" : in_quotes(id->second)) +
                    ", the manifest is of save " + in_quotes(manifest.save_id));
  if (parsed.tensors != tensor_entries(manifest, expected))
    throw LoadError(file.path() + ": its header and the manifest name other tensors");
}

std::string tensors_in(const Manifest& manifest, const ManifestFile& file, std::int64_t begin,
                       std::int64_t end) {
  std::string names;
  int count = 0;
  for (const TensorEntry& tensor : tensor_entries(manifest, file))
    if (tensor.begin < end && tensor.end > begin && ++count <= 3)
      names += (names.empty() ? "" : ", ") + in_quotes(tensor.name);
  return names + (count > 3 ? " and " + std::to_string(count - 3) + " more" : "");
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

struct Chunk {
  std::int64_t begin, end;  // bytes of the data section
  std::span<std::byte> bytes;
};

// The chunks that something is wanted of, in order; the next one is read while one is looked at.
class ChunkStream {
 public:
  ChunkStream(File& shard, const ManifestFile& file, const std::vector<Want>& wants,
              std::span<std::byte> buffer)
      : shard_(shard), file_(file), buffer_(buffer) {
    std::int64_t last = -1;
    for (const Want& want : wants)
      for (std::int64_t c = std::max(last + 1, want.begin / chunk_bytes);
           c * chunk_bytes < want.end; ++c)
        chunks_.push_back(last = c);
    start();
  }

  std::optional<Chunk> next() {
    if (!reading_.valid()) return std::nullopt;
    reading_.get();
    const Chunk chunk = place(started_ - 1);
    start();
    return chunk;
  }

 private:
  Chunk place(std::size_t number) const {
    const std::int64_t begin = chunks_[number] * chunk_bytes;
    const std::int64_t end = std::min(begin + chunk_bytes, file_.data_bytes());
    const auto half = static_cast<std::size_t>(number % 2 * chunk_bytes);
    return {begin, end, buffer_.subspan(half, static_cast<std::size_t>(end - begin))};
  }

  void start() {
    if (started_ == chunks_.size()) return;
    const Chunk chunk = place(started_++);
    reading_ =
        std::async(started_ == 1 ? std::launch::deferred : std::launch::async,
                   [this, chunk] { shard_.read(file_.header_bytes + chunk.begin, chunk.bytes); });
  }

  File& shard_;
  const ManifestFile& file_;
  std::span<std::byte> buffer_;
  std::vector<std::int64_t> chunks_;
  std::size_t started_ = 0;
  std::future<void> reading_;
};

}  // namespace

void read_shard(const Directory& directory, const Manifest& manifest, const ManifestFile& file,
                std::vector<ElementRange> wanted, std::span<std::byte> buffer,
                const ElementSink& sink) {
  const std::vector<Want> wants = find_in(manifest, file, std::move(wanted));
  if (wants.empty() && !file.entries.empty()) return;
  File shard = directory.open_file(file.name);
  check_header(shard, manifest, file);
  shard.bypass_cache();
  ChunkStream stream(shard, file, wants, buffer);
  std::size_t first = 0;  // all before it end before the chunk
  while (const std::optional<Chunk> chunk = stream.next()) {
    const auto& [begin, end, bytes] = *chunk;
    const Digest found = digest_of(std::span<const std::byte>(bytes));
    const Digest& expected = file.chunks[static_cast<std::size_t>(begin / chunk_bytes)];
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
           bytes.subspan(static_cast<std::size_t>(from - begin),
                         static_cast<std::size_t>(to - from)));
    }
    while (first < wants.size() && wants[first].end <= end) ++first;
  }
}

}  // namespace zero::checkpoint
