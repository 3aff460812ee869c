#include "zero/checkpoint/tensor_reader.h"

#include <algorithm>
#include <cstring>

#include "zero/base/dtype.h"
#include "zero/base/error.h"
#include "zero/checkpoint/store.h"

namespace zero::checkpoint {
namespace {

template <class T>
void widen(std::span<const std::byte> bytes, float* values) {
  for (std::size_t i = 0; i * sizeof(T) < bytes.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = to_float(element);
  }
}

}  // namespace

TensorReader::TensorReader(const std::string& path)
    : directory_(Directory::open(path)),
      manifest_(reading(directory_.path(), [this] { return read_manifest(directory_); })),
      memory_(std::make_unique_for_overwrite<std::byte[]>(read_buffer_bytes)),
      buffer_(memory_.get(), read_buffer_bytes) {
  for (std::size_t f = 0; f < manifest_.files.size(); ++f)
    for (std::size_t e = 0; e < manifest_.files[f].entries.size(); ++e) {
      const ShardEntry& entry = manifest_.files[f].entries[e];
      parts_[{entry.parameter, entry.kind}].push_back(
          {entry.begin, entry.begin + entry.count, f, e});
    }
  for (auto& [key, parts] : parts_)
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.begin < b.begin; });
}

void TensorReader::read(int parameter, int kind, std::int64_t first, std::span<float> values) {
  const std::int64_t last = first + static_cast<std::int64_t>(values.size());
  for (const Part& part : parts_[{parameter, kind}]) {
    const std::int64_t from = std::max(first, part.begin), to = std::min(last, part.end);
    if (from >= to) continue;
    const ManifestFile& file = manifest_.files[part.file];
    const std::string& dtype = manifest_.dtype_of(file.entries[part.entry]);
    read_part(part, from - part.begin, to - from,
              [&](const EntryRange& range, std::span<const std::byte> bytes) {
                float* target = values.data() + (part.begin + range.begin - first);
                if (dtype == "F32")
                  std::memcpy(target, bytes.data(), bytes.size());
                else if (dtype == "BF16")
                  widen<bf16>(bytes, target);
                else
                  widen<fp16>(bytes, target);
              });
  }
}

void TensorReader::read_part(const Part& part, std::int64_t first, std::int64_t count,
                             const EntrySink& sink) {
  reading(path(), [&] {
    read_shard(directory_, manifest_, manifest_.files[part.file], {{part.entry, first, count}},
               buffer_, sink);
  });
}

std::vector<std::byte> TensorReader::bytes(int parameter) {
  const std::vector<Part>& parts = parts_[{parameter, 0}];
  std::vector<std::byte> all;
  for (const Part& part : parts)
    read_part(part, 0, part.end - part.begin,
              [&](const EntryRange&, std::span<const std::byte> piece) {
                all.insert(all.end(), piece.begin(), piece.end());
              });
  return all;
}

void TensorReader::verify() {
  for (const ManifestFile& file : manifest_.files)
    reading(path(), [&] { verify_shard(directory_, manifest_, file, buffer_); });
}

std::string find_checkpoint(const std::string& path, const std::string& tag) {
  const Directory root = Directory::open(path);
  if (tag.empty() && (root.has(manifest_name) || root.has(manifest_digest_name)))
    return root.path();
  const auto choice = choose(path, tag);
  if (!choice) throw LoadError(root.path() + ": there is no checkpoint in it");
  return root.path() + "/" + choice->candidate.tag;
}

}  // namespace zero::checkpoint
