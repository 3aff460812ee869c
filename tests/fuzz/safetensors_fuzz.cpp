// The header of a safetensors file: what is accepted keeps every rule of the format, and written
// again it is the same. The first 8 bytes of the input are the header's length, as in a file.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.h"
#include "zero/base/error.h"
#include "zero/checkpoint/safetensors_header.h"

using namespace zero::checkpoint;

namespace {

SafetensorsHeader parse(std::string_view json, std::int64_t data_bytes) {
  return parse_header("input", json, data_bytes);
}

bool equal(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  return a.metadata == b.metadata &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                    [](const TensorEntry& x, const TensorEntry& y) {
                      return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape &&
                             x.begin == y.begin && x.end == y.end;
                    });
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
    require(equal(header, parse(format_header(header), data_bytes)));
  } catch (const zero::LoadError&) {
    // Refused.
  }
  return 0;
}
