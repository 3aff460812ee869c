#include "zero/checkpoint/tensor_reader.h"

#include <algorithm>

#include "zero/base/error.h"
#include "zero/checkpoint/store.h"

namespace zero::checkpoint {

TensorReader::TensorReader(const std::string& path)
    : directory_(Directory::open(path)),
      manifest_(reading(directory_.path(), [this] { return read_manifest(directory_); })),
      buffer_(read_buffer_bytes) {}

void TensorReader::read_range(const ElementRange& range, const ElementSink& sink) {
  reading(path(), [&] {
    for (const ManifestFile& file : manifest_.files)
      read_shard(directory_, manifest_, file, {range}, buffer_, sink);
  });
}

void TensorReader::read(int parameter, int kind, std::int64_t first, std::span<float> values) {
  const ElementRange wanted{parameter, kind, first, std::ssize(values)};
  read_range(wanted, [&](const ElementRange& range, std::span<const std::byte> bytes) {
    to_floats(manifest_.dtype_of(range), bytes, values.data() + (range.begin - first));
  });
}

std::vector<std::byte> TensorReader::bytes(int parameter) {
  const ElementRange whole{parameter, 0, 0, manifest_.parameters[parameter].elements()};
  const std::int64_t width = manifest_.width_of(whole);
  std::vector<std::byte> all(whole.count * width);
  read_range(whole, [&](const ElementRange& range, std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, all.begin() + range.begin * width);
  });
  return all;
}

void TensorReader::verify() {
  for (const ManifestFile& file : manifest_.files)
    reading(path(), [&] {
      read_shard(directory_, manifest_, file, file.entries, buffer_,
                 [](const auto&, const auto&) {});
    });
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
