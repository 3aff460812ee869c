#include <set>

#include "zero/base/error.h"
#include "zero/checkpoint/safetensors.h"
#include "zero/checkpoint/safetensors_header.h"

namespace zero::checkpoint {
namespace {

std::string entry_problem(TensorEntry& tensor, std::int64_t begin) {
  std::string problem = name_problem(tensor.name);
  if (tensor.name == "__metadata__") problem = "the name is reserved";
  if (!problem.empty()) return problem;
  const std::int64_t bytes = checked_bytes(tensor, problem);
  if (!problem.empty()) return problem;
  tensor.begin = begin;
  if (__builtin_add_overflow(begin, bytes, &tensor.end)) return "the file would be too large";
  const std::int64_t width = *bits_of(tensor.dtype) / 8;
  if (width > 1 && begin % width != 0)
    return "its data would not be aligned to its elements; declare wider dtypes first";
  return "";
}

// The declared tensors with their places. Throws UsageError.
std::vector<TensorEntry> placed(const std::string& path, std::vector<TensorEntry> tensors) {
  if (tensors.size() > max_tensors) throw UsageError(path + ": more than 1000000 tensors");
  std::set<std::string_view> names;
  std::int64_t end = 0;
  for (TensorEntry& tensor : tensors) {
    std::string problem = entry_problem(tensor, end);
    if (!names.insert(tensor.name).second) problem = "is declared twice";
    if (!problem.empty())
      throw UsageError(path + ": tensor " + in_quotes(tensor.name) + ": " + problem);
    end = tensor.end;
  }
  return tensors;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorEntry> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), tensors_(placed(path, std::move(tensors))), file_(path) {
  const std::string header = format_header({tensors_, metadata});
  if (static_cast<std::int64_t>(header.size()) > max_header_bytes)
    throw UsageError(path + ": the header would be larger than 64 MiB");
  const std::uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  while (current_ < tensors_.size() && tensors_[current_].end == written_) ++current_;
  const auto count = static_cast<std::int64_t>(bytes.size());
  if (current_ == tensors_.size()) throw UsageError(path_ + ": more data than the tensors have");
  const TensorEntry& tensor = tensors_[current_];
  if (count > tensor.end - written_)
    throw UsageError(path_ + ": tensor " + in_quotes(tensor.name) + " has " +
                     std::to_string(tensor.end - tensor.begin) + " bytes; " +
                     std::to_string(written_ - tensor.begin + count) + " were written");
  file_.write(bytes);
  written_ += count;
}

void SafetensorsWriter::finish() {
  for (const TensorEntry& tensor : tensors_)
    if (tensor.end > written_)
      throw UsageError(path_ + ": tensor " + in_quotes(tensor.name) + " is not written to its end");
  file_.commit();
}

std::string safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::fp16:
      return "F16";
    case DType::int64:
      return "I64";
  }
  throw UsageError("this dtype has no name in safetensors");
}

}  // namespace zero::checkpoint
