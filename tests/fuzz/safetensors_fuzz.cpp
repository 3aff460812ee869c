// The header of a safetensors file: if it is accepted, it keeps every rule of the format, and
// writing it again gives the same. The first 8 bytes of the input are the header's length, as in a
// file.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.h"
#include "zero/base/error.h"
#include "zero/checkpoint/format/safetensors.h"

using namespace zero::checkpoint;

namespace {

SafetensorsHeader parse(std::string_view json, std::int64_t data_bytes) {
  return parse_header("input", json, data_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  std::uint64_t length = 0;
  if (size < sizeof length) return 0;
  std::memcpy(&length, data, sizeof length);
  if (length > size - sizeof length) return 0;
  const std::string_view json = file.substr(sizeof length, length);
  const auto data_bytes = static_cast<std::int64_t>(size - sizeof length - length);
  try {
    const SafetensorsHeader header = parse(json, data_bytes);
    std::int64_t end = 0;
    for (const TensorEntry& tensor : header.tensors) {
      std::string problem;
      require(tensor.begin == end && checked_bytes(tensor, problem) == tensor.end - tensor.begin);
      require(problem.empty() && name_problem(tensor.name).empty());
      end = tensor.end;
    }
    require(end == data_bytes);
    const SafetensorsHeader again =
        parse(std::string_view(format_header(header)).substr(length_bytes), data_bytes);
    require(again.tensors == header.tensors && again.metadata == header.metadata);
  } catch (const zero::LoadError&) {
    // Refused.
  }
  return 0;
}
