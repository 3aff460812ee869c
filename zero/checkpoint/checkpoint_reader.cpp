#include "zero/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <tuple>
#include <utility>

#include "zero/base/error.h"
#include "zero/base/text.h"
#include "zero/checkpoint/checkpoint_directory.h"

namespace zero::checkpoint {

namespace {

File open_shard(const Directory& checkpoint, const ManifestFile& file) {
  File shard = checkpoint.open_file(file.name);
  if (const std::int64_t size = shard.size(); size != file.bytes)
    throw LoadError(shard.path() + ": has " + std::to_string(size) + " bytes, the manifest says " +
                    std::to_string(file.bytes) +
                    (size < file.bytes ? ": cut short" : ": something was added"));
  return shard;
}

std::string tensors_in(const Manifest& manifest, const Shard& shard, std::int64_t begin,
                       std::int64_t end) {
  std::vector<std::string> names;
  for (const FileEntry& entry : shard.entries)
    if (entry.begin < end && entry.end() > begin)
      names.push_back(in_quotes(manifest.name_of(entry.range)));
  return list_of(names, 3);
}

// Lists the file's pieces of the ranges, in the order of the data.
std::vector<FileEntry> find_in(const Shard& shard, const std::vector<ElementRange>& sorted) {
  std::vector<FileEntry> wants;
  for (const auto& [entry, width, data] : shard.entries) {
    const auto key = [](const ElementRange& range) {
      return std::tuple(range.parameter, range.kind, range.end());
    };
    auto range = std::ranges::upper_bound(
        sorted, std::tuple(entry.parameter, entry.kind, entry.begin), {}, key);
    for (; range != sorted.end() && range->parameter == entry.parameter &&
           range->kind == entry.kind && range->begin < entry.end();
         ++range) {
      const std::int64_t from = std::max(range->begin, entry.begin);
      const std::int64_t count = std::min(range->end(), entry.end()) - from;
      wants.push_back(
          {{entry.parameter, entry.kind, from, count}, width, data + (from - entry.begin) * width});
    }
  }
  return wants;
}

// Indices of the chunks to read.
std::vector<std::int64_t> chunks_of(const std::vector<FileEntry>& wants) {
  std::vector<std::int64_t> chunks;
  for (const FileEntry& want : wants) {
    const std::int64_t next = chunks.empty() ? 0 : chunks.back() + 1;
    for (std::int64_t c = std::max(next, want.begin / chunk_bytes); c * chunk_bytes < want.end();
         ++c)
      chunks.push_back(c);
  }
  return chunks;
}

}  // namespace

std::string read_shard_header(const Directory& checkpoint, const ManifestFile& file) {
  const File shard = open_shard(checkpoint, file);
  const auto read = [&](std::uint64_t bytes) {
    std::string text(bytes, '\0');
    shard.read(0, std::as_writable_bytes(std::span(text)));
    return text;
  };
  const std::uint64_t size = file.bytes;
  std::uint64_t length = 0;
  const std::string begin = read(std::min<std::uint64_t>(size, length_bytes));
  std::memcpy(&length, begin.data(), begin.size());
  const std::uint64_t most = std::min<std::uint64_t>(size - begin.size(), max_header_bytes);
  std::string header = read(begin.size() + std::min(length, most));
  const Digest found = file_digest(header, file.chunks);
  if (found != file.digest)
    throw LoadError(shard.path() + ": its header (bytes 0 to " + std::to_string(header.size()) +
                    ") is damaged or of another checkpoint: expected file digest " +
                    file.digest.hex() + ", found " + found.hex());
  return header;
}

std::string read_program_state(const Directory& checkpoint, const Manifest& manifest) {
  if (!manifest.program_state_digest) return "";
  const File file = checkpoint.open_file(program_state_name);
  if (file.size() != manifest.program_state_bytes)
    throw LoadError(file.path() + ": has " + std::to_string(file.size()) +
                    " bytes, the manifest says " + std::to_string(manifest.program_state_bytes));
  std::string bytes = file.read_text(manifest.program_state_bytes);
  const Digest found = digest_of(bytes);
  if (found != *manifest.program_state_digest)
    throw LoadError(file.path() + " is damaged: expected digest " +
                    manifest.program_state_digest->hex() + ", found " + found.hex());
  return bytes;
}

CheckpointReader::CheckpointReader(const std::string& path)
    : directory_(Directory::open(path)), own_buffer_(read_buffer_bytes), buffer_(own_buffer_) {
  reading(directory_, [this] {
    manifest_ = read_manifest(directory_);
    std::vector<std::string> headers;
    for (const ManifestFile& file : manifest_.files)
      headers.push_back(read_shard_header(directory_, file));
    shards_ = parse_shard_headers(this->path(), manifest_, headers);
  });
}

CheckpointReader::CheckpointReader(Directory checkpoint, Manifest manifest,
                                   const std::vector<std::string>& headers,
                                   std::span<std::byte> buffer)
    : directory_(std::move(checkpoint)),
      manifest_(std::move(manifest)),
      shards_(parse_shard_headers(path(), manifest_, headers)),
      buffer_(buffer) {}

void CheckpointReader::read_wants(std::size_t number, const std::vector<FileEntry>& wants,
                                  const Sink& sink) const {
  const ManifestFile& file = manifest_.files[number];
  const std::int64_t header_bytes = shards_[number].header_bytes;
  File shard = open_shard(directory_, file);
  shard.bypass_cache();
  const std::vector<std::int64_t> chunks = chunks_of(wants);
  const auto end_of = [&](std::int64_t chunk) {
    return std::min((chunk + 1) * chunk_bytes, file.bytes - header_bytes);
  };
  const auto memory_of = [&](std::size_t i) {
    return buffer_.subspan(i % 2 * chunk_bytes, end_of(chunks[i]) - chunks[i] * chunk_bytes);
  };
  // The next chunk is read while the current chunk is processed.
  std::future<void> reading;
  const auto start = [&](std::size_t i) {
    if (i < chunks.size())
      reading = std::async(i == 0 ? std::launch::deferred : std::launch::async, [&, i] {
        shard.read(header_bytes + chunks[i] * chunk_bytes, memory_of(i));
      });
  };
  start(0);
  std::size_t first = 0;  // all earlier wants end before the chunk
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    reading.get();
    start(i + 1);
    const std::int64_t begin = chunks[i] * chunk_bytes, end = end_of(chunks[i]);
    const std::span<const std::byte> bytes = memory_of(i);
    const Digest found = digest_of(bytes);
    const Digest& expected = file.chunks[chunks[i]];
    if (found != expected)
      throw LoadError(shard.path() + ": bytes " + std::to_string(header_bytes + begin) + " to " +
                      std::to_string(header_bytes + end) + " are damaged (" +
                      tensors_in(manifest_, shards_[number], begin, end) + "): expected digest " +
                      expected.hex() + ", found " + found.hex());
    for (std::size_t w = first; w < wants.size() && wants[w].begin < end; ++w) {
      const FileEntry& want = wants[w];
      const std::int64_t from = std::max(want.begin, begin), to = std::min(want.end(), end);
      sink(file,
           {want.range.parameter, want.range.kind,
            want.range.begin + (from - want.begin) / want.width, (to - from) / want.width},
           bytes.subspan(from - begin, to - from));
    }
    while (first < wants.size() && wants[first].end() <= end) ++first;
  }
}

void CheckpointReader::read(std::vector<ElementRange> wanted, const Sink& sink) const {
  std::ranges::sort(wanted);
  reading(directory_, [&] {
    for (std::size_t i = 0; i < shards_.size(); ++i)
      if (const std::vector<FileEntry> wants = find_in(shards_[i], wanted); !wants.empty())
        read_wants(i, wants, sink);
  });
}

void CheckpointReader::read(int parameter, int kind, std::int64_t first,
                            std::span<float> values) const {
  const TensorSplit split = manifest_.parameters[parameter].split();
  std::vector<ElementRange> wanted;
  split.for_whole(first, std::ssize(values),
                  [&](std::int64_t, std::int64_t stored, std::int64_t count) {
                    wanted.push_back({parameter, kind, stored, count});
                  });
  read(std::move(wanted),
       [&](const ManifestFile&, const ElementRange& range, std::span<const std::byte> bytes) {
         const std::int64_t width = manifest_.width_of(range);
         split.for_parts(range.begin, range.count,
                         [&](std::int64_t from, std::int64_t whole, std::int64_t count) {
                           to_floats(manifest_.dtype_of(range),
                                     bytes.subspan((from - range.begin) * width, count * width),
                                     values.data() + (whole - first));
                         });
       });
}

void CheckpointReader::require_whole(int number) const {
  const ManifestParameter& parameter = manifest_.parameters[number];
  if (parameter.only_in_parts())
    throw LoadError(path() + ": " + parameter.name + " is saved in " +
                    std::to_string(parameter.split_sizes.size()) +
                    " parts, and the program did not say of which dimension: declare it with "
                    "ParamOptions::split_dim, resume on as many tensor ranks, and save again");
}

void CheckpointReader::verify() const {
  std::vector<ElementRange> all;
  for (const Shard& shard : shards_)
    for (const FileEntry& entry : shard.entries) all.push_back(entry.range);
  read(std::move(all), [](const auto&, const auto&, const auto&) {});
  reading(directory_, [this] { read_program_state(directory_, manifest_); });
}

}  // namespace zero::checkpoint
