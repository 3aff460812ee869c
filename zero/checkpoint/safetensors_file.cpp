#include "zero/checkpoint/safetensors_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "zero/base/error.h"

namespace zero::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct Signature {
  std::string_view bytes, kind;
};

// Files that users pass by mistake.
constexpr Signature signatures[] = {
    {"PK\x03\x04", "zip file (a PyTorch checkpoint?)"},
    {"\x1f\x8b", "gzip file"},
    {"\x80\x02", "pickle file (an old PyTorch checkpoint?)"},
    {"\x80\x03", "pickle file"},
    {"\x80\x04", "pickle file"},
    {"\x80\x05", "pickle file"},
    {"GGUF", "GGUF file"},
    {"\x93NUMPY", "NumPy file"},
    {"\x89HDF", "HDF5 file"},
    {"version https://git-lfs", "Git LFS pointer; fetch the file itself with: git lfs pull"},
    {"{", "JSON file"},
    {"<", "HTML or XML file"},
};

std::string foreign_kind(std::string_view file) {
  for (const Signature& signature : signatures)
    if (file.starts_with(signature.bytes)) return std::string(signature.kind);
  return "";
}

std::string read_header(const File& file) {
  const std::int64_t size = file.size();
  std::string start(std::min<std::int64_t>(size, 32), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  const auto refuse = [&](const std::string& reason) {
    const std::string kind = foreign_kind(start);
    throw LoadError(file.path() + ": " + (kind.empty() ? reason : "this is a " + kind) +
                    "; a safetensors file is needed");
  };
  if (size == 0) refuse("is empty");
  if (start.size() < length_bytes) refuse("is cut short after " + std::to_string(size) + " bytes");
  std::uint64_t length = 0;
  std::memcpy(&length, start.data(), length_bytes);
  const std::uint64_t rest = static_cast<std::uint64_t>(size) - length_bytes;
  if (length > static_cast<std::uint64_t>(max_header_bytes))
    refuse("its header of " + std::to_string(length) + " bytes is over 64 MiB");
  if (length > rest)
    refuse("is cut short: its header needs " + std::to_string(length) + " bytes, the file has " +
           std::to_string(rest));
  std::string header(length, '\0');
  file.read(length_bytes, std::as_writable_bytes(std::span(header)));
  if (!header.starts_with('{')) refuse("its header does not start with {");
  return header;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(File::open(path)) {
  const std::string json = read_header(file_);
  data_begin_ = static_cast<std::int64_t>(length_bytes + json.size());
  header_ = parse_header(path, json, file_.size() - data_begin_);
  for (const TensorEntry& tensor : header_.tensors) by_name_.emplace(tensor.name, &tensor);
}

const TensorEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

void SafetensorsReader::read_bytes(const TensorEntry& tensor, std::int64_t first,
                                   std::span<std::byte> bytes) const {
  file_.read(data_begin_ + tensor.begin + first, bytes);
}

void SafetensorsReader::read(const TensorEntry& tensor, std::int64_t first,
                             std::span<float> values) const {
  if (first < 0 || std::ssize(values) > tensor.elements() - first)
    throw UsageError("tensor " + in_quotes(tensor.name) + " of " + path() + " has " +
                     std::to_string(tensor.elements()) + " elements; " +
                     std::to_string(values.size()) + " from " + std::to_string(first) +
                     " on were asked for");
  if (!to_floats(tensor.dtype, {}, nullptr))
    throw LoadError(path() + ": tensor " + in_quotes(tensor.name) + " has dtype " + tensor.dtype +
                    "; F32, BF16, F16 or F64 is needed");
  const std::int64_t width = *bits_of(tensor.dtype) / 8;
  std::array<std::byte, 1 << 16> piece;
  while (!values.empty()) {
    const std::int64_t count = std::min(std::ssize(values), std::ssize(piece) / width);
    const auto bytes = std::span(piece).first(count * width);
    file_.read(data_begin_ + tensor.begin + first * width, bytes);
    to_floats(tensor.dtype, bytes, values.data());
    values = values.subspan(count);
    first += count;
  }
}

SafetensorsWriter::SafetensorsWriter(File file, std::string_view header, std::int64_t data_bytes)
    : file_(std::move(file)), header_bytes_(std::ssize(header)), data_bytes_(data_bytes) {
  if (header.size() > max_header_bytes + length_bytes)
    throw SaveError(path() + ": the header would be larger than 64 MiB");
  file_.reserve(header_bytes_ + data_bytes);
  file_.write(std::as_bytes(std::span(header)));
  file_.bypass_cache();
}

void SafetensorsWriter::finish() {
  if (const std::int64_t written = file_.written() - header_bytes_; written != data_bytes_)
    throw SaveError(path() + ": " + std::to_string(written) + " of " + std::to_string(data_bytes_) +
                    " bytes were written");
  file_.sync();
  file_.close();
}

}  // namespace zero::checkpoint
