// The manifest of a checkpoint: what is accepted can be written and read again, and the sizes,
// names and ranges in it fit each other.
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.h"
#include "zero/base/error.h"
#include "zero/checkpoint/format/manifest.h"

using namespace zero::checkpoint;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const Manifest manifest =
        parse_manifest("input", std::string_view(reinterpret_cast<const char*>(data), size));
    const std::string text = format_manifest(manifest);
    require(format_manifest(parse_manifest("input", text)) == text);
    for (const ManifestFile& file : manifest.files) {
      const auto tensors = tensor_entries(manifest, file);
      require(tensors.size() == file.entries.size());
      require(tensors.empty() ? file.data_bytes() == 0 : tensors.back().end == file.data_bytes());
      require(file.name.find('/') == std::string::npos && file.name.front() != '.');
    }
  } catch (const zero::LoadError&) {
    // Refused.
  }
  return 0;
}
