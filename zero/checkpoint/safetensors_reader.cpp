#include <bit>
#include <cstring>

#include "zero/base/error.h"
#include "zero/checkpoint/safetensors.h"
#include "zero/checkpoint/safetensors_header.h"

namespace zero::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t length_bytes = 8;

struct Signature {
  std::string_view bytes, kind;
};

// What people pass by mistake.
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

[[noreturn]] void not_safetensors(const std::string& path, std::string_view file,
                                  const std::string& reason) {
  const std::string kind = foreign_kind(file);
  throw LoadError(path + ": " + (kind.empty() ? reason : "this is a " + kind) +
                  "; a safetensors file is needed");
}

std::string_view header_of(const std::string& path, std::string_view file) {
  if (file.size() < length_bytes) {
    const std::string size = std::to_string(file.size());
    not_safetensors(path, file,
                    file.empty() ? "is empty" : "is cut short after " + size + " bytes");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), length_bytes);
  if (length > static_cast<std::uint64_t>(max_header_bytes))
    not_safetensors(path, file,
                    "its header of " + std::to_string(length) + " bytes is over 64 MiB");
  if (length > file.size() - length_bytes)
    not_safetensors(path, file,
                    "is cut short: its header needs " + std::to_string(length) +
                        " bytes, the file has " + std::to_string(file.size() - length_bytes));
  const std::string_view header = file.substr(length_bytes, length);
  if (!header.starts_with('{')) not_safetensors(path, file, "its header does not start with {");
  return header;
}

template <class T>
void convert(const std::byte* source, std::span<float> values) {
  for (float& value : values) {
    T element;
    std::memcpy(&element, source, sizeof element);  // the data need not be aligned
    source += sizeof element;
    if constexpr (std::is_same_v<T, double>)
      value = static_cast<float>(element);
    else
      value = to_float(element);
  }
}

}  // namespace

std::int64_t TensorEntry::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t n : shape) product *= n;
  return product;
}

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path), file_(path) {
  const std::span<const std::byte> all = file_.bytes();
  const std::string_view file(reinterpret_cast<const char*>(all.data()), all.size());
  const std::string_view json = header_of(path, file);
  data_ = all.subspan(length_bytes + json.size());
  SafetensorsHeader header = parse_header(path, json, static_cast<std::int64_t>(data_.size()));
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!index_.emplace(tensors_[i].name, i).second)
      throw LoadError(path + ": tensor " + in_quotes(tensors_[i].name) + " is given twice");
}

const TensorEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> SafetensorsReader::bytes(const TensorEntry& tensor) const {
  const TensorEntry* own = find(tensor.name);
  if (own == nullptr || own->begin != tensor.begin || own->end != tensor.end)
    throw UsageError("tensor " + in_quotes(tensor.name) + " is not an entry of " + path_);
  return data_.subspan(static_cast<std::size_t>(own->begin),
                       static_cast<std::size_t>(own->end - own->begin));
}

void SafetensorsReader::read(const TensorEntry& tensor, std::int64_t first,
                             std::span<float> values) const {
  const std::span<const std::byte> source = bytes(tensor);
  const auto count = static_cast<std::int64_t>(values.size());
  if (first < 0 || count > tensor.elements() || first > tensor.elements() - count)
    throw UsageError("tensor " + in_quotes(tensor.name) + " of " + path_ + " has " +
                     std::to_string(tensor.elements()) + " elements; " + std::to_string(count) +
                     " from " + std::to_string(first) + " on were asked for");
  if (values.empty()) return;
  const std::size_t width = source.size() / static_cast<std::size_t>(tensor.elements());
  const std::byte* start = source.data() + static_cast<std::size_t>(first) * width;
  if (tensor.dtype == "F32")
    std::memcpy(values.data(), start, values.size_bytes());
  else if (tensor.dtype == "BF16")
    convert<bf16>(start, values);
  else if (tensor.dtype == "F16")
    convert<fp16>(start, values);
  else if (tensor.dtype == "F64")
    convert<double>(start, values);
  else
    throw LoadError(path_ + ": tensor " + in_quotes(tensor.name) + " has dtype " + tensor.dtype +
                    "; F32, BF16, F16 or F64 is needed");
}

}  // namespace zero::checkpoint
