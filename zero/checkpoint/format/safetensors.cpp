#include "zero/checkpoint/format/safetensors.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "zero/base/error.h"
#include "zero/base/text.h"
#include "zero/checkpoint/format/json.h"

namespace zero::checkpoint {
namespace {

constexpr const char* metadata_key = "__metadata__";

TensorEntry parse_entry(const std::string& where, const std::string& name, const Json& json) {
  const JsonReader read(where, json);
  TensorEntry entry{name, "", {}};
  std::vector<std::int64_t> offsets;
  read("dtype", entry.dtype);
  read("shape", entry.shape);
  read("data_offsets", offsets);
  if (offsets.size() != 2) read.refuse("data_offsets needs two numbers");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  return entry;
}

// Tensors in the order of the data must touch each other and fill the file: a byte that belongs to
// two tensors, or to none, is typical of damaged and hostile files.
std::string coverage_problem(const std::vector<TensorEntry>& tensors, std::int64_t data_bytes) {
  std::int64_t covered = 0;
  for (const TensorEntry& tensor : tensors) {
    std::string problem;
    const std::int64_t bytes = checked_bytes(tensor, problem);
    const std::string name = "tensor " + in_quotes(tensor.name);
    if (!problem.empty()) return name + ": " + problem;
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes)
      return name + ": its shape and dtype need " + std::to_string(bytes) +
             " bytes, data_offsets say " + std::to_string(tensor.begin) + " to " +
             std::to_string(tensor.end);
    if (tensor.end > data_bytes)
      return name + ": ends at byte " + std::to_string(tensor.end) +
             " of the data, of which the file has " + std::to_string(data_bytes) + ": cut short";
    if (tensor.begin < covered) return name + ": overlaps another tensor";
    if (tensor.begin > covered)
      return "bytes " + std::to_string(covered) + " to " + std::to_string(tensor.begin) +
             " of the data belong to no tensor";
    covered = tensor.end;
  }
  if (covered == data_bytes) return "";
  return std::to_string(data_bytes - covered) + " bytes after the last tensor belong to none";
}

template <class T>
void convert(std::span<const std::byte> bytes, float* values) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));  // may be unaligned
    if constexpr (std::is_same_v<T, double>)
      values[i] = static_cast<float>(element);
    else
      values[i] = to_float(element);
  }
}

}  // namespace

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> extents;
  for (const std::int64_t extent : shape) extents.push_back(std::to_string(extent));
  return "[" + list_of(extents, extents.size()) + "]";
}

bool to_floats(std::string_view dtype, std::span<const std::byte> bytes, float* values) {
  if (dtype == "F32")
    convert<float>(bytes, values);
  else if (dtype == "BF16")
    convert<bf16>(bytes, values);
  else if (dtype == "F16")
    convert<fp16>(bytes, values);
  else if (dtype == "F64")
    convert<double>(bytes, values);
  else
    return false;
  return true;
}

std::int64_t checked_bytes(const TensorEntry& entry, std::string& problem) {
  const auto bits = bits_of(entry.dtype);
  if (!bits) {
    problem = "unknown dtype " + in_quotes(entry.dtype);
    return 0;
  }
  if (entry.shape.size() > max_rank) problem = "more than 16 dimensions";
  std::int64_t total = *bits;
  for (const std::int64_t n : entry.shape) {
    if (n < 0) problem = "a dimension is negative";
    if (__builtin_mul_overflow(total, n, &total)) problem = "its size does not fit in 64 bits";
    if (!problem.empty()) return 0;
  }
  if (total % 8 != 0) problem = "its size is no whole number of bytes";
  return total / 8;
}

std::string name_problem(std::string_view name) {
  if (name.empty()) return "a tensor's name is empty";
  if (name.size() > max_name_bytes) return "the name is longer than 1 KiB";
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    // Control characters: C0, DEL, and C1 (in UTF-8 0xc2 and a byte below 0xa0).
    const bool c1 =
        byte == 0xc2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xa0;
    if (byte < 0x20 || byte == 0x7f || c1) return "the name has a control character";
  }
  return "";
}

std::string file_name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > 200) return "is longer than 200 bytes";
  if (name[0] == '.') return "starts with a dot";
  for (const char c : name) {
    if (c == '/') return "has a slash";
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f)
      return "has a character outside printable ASCII";
  }
  return "";
}

std::string in_quotes(std::string_view name) {
  return "\"" + printable(name, 100) + "\"";
}

void place_tensors(const std::string& path, std::vector<TensorEntry>& tensors) {
  if (tensors.size() > max_tensors) throw UsageError(path + ": more than 1000000 tensors");
  std::set<std::string_view> names;
  std::int64_t end = 0;
  for (TensorEntry& tensor : tensors) {
    std::string problem = name_problem(tensor.name);
    tensor.begin = end;
    const std::int64_t bytes = problem.empty() ? checked_bytes(tensor, problem) : 0;
    if (tensor.name == metadata_key) problem = "the name is reserved";
    if (!names.insert(tensor.name).second) problem = "is declared twice";
    if (__builtin_add_overflow(tensor.begin, bytes, &end)) problem = "the file would be too large";
    if (problem.empty() && tensor.begin % std::max(1, *bits_of(tensor.dtype) / 8) != 0)
      problem = "its data would not be aligned to its elements; declare wider dtypes first";
    if (!problem.empty())
      throw UsageError(path + ": tensor " + in_quotes(tensor.name) + ": " + problem);
    tensor.end = end;
  }
}

// Parses entry by entry, so that a hostile header takes no more memory than a single entry.
SafetensorsHeader parse_header(const std::string& path, std::string_view json,
                               std::int64_t data_bytes) {
  using Event = Json::parse_event_t;
  SafetensorsHeader header;
  std::string name, where = path;
  std::size_t numbers = 0;  // in the current array
  const auto refuse = [&](const std::string& problem) {
    if (!problem.empty()) throw LoadError(where + ": " + problem);
  };
  scan_json(path, json, [&](int depth, Event event, const Json& value) {
    const bool in_metadata = name == metadata_key;
    if (event == Event::key && depth == 1) {
      name = value.get<std::string>();
      where = path;
      if (name == metadata_key) where += std::string(": ") + metadata_key;
      if (name == metadata_key) return true;
      if (header.tensors.size() == max_tensors)
        refuse("more than " + std::to_string(max_tensors) + " tensors");
      where += ": tensor " + in_quotes(name);
      refuse(name_problem(name));
    } else if (event == Event::key && !in_metadata) {
      const std::string field = value.get<std::string>();
      if (field != "dtype" && field != "shape" && field != "data_offsets")
        refuse("unknown field " + in_quotes(field));
    } else if ((event == Event::object_start && depth > 1) ||
               (event == Event::array_start && (depth != 2 || in_metadata))) {
      refuse("an object or array is not allowed here");
    } else if (event == Event::array_start) {
      numbers = 0;
    } else if (event == Event::value && depth == 3 && ++numbers > max_rank) {
      refuse("an array has more than 16 numbers");
    } else if (depth == 1 && (event == Event::object_end || event == Event::value)) {
      if (in_metadata)
        JsonReader(where, value).get_to(header.metadata);
      else
        header.tensors.push_back(parse_entry(where, name, value));
      return false;
    }
    return true;
  });
  std::ranges::stable_sort(header.tensors, {},
                           [](const TensorEntry& t) { return std::pair(t.begin, t.end); });
  where = path;
  refuse(coverage_problem(header.tensors, data_bytes));
  return header;
}

std::string format_header(const SafetensorsHeader& header, std::size_t alignment) {
  std::string text(length_bytes, '\0');
  if (!header.metadata.empty())
    text += ",\"" + std::string(metadata_key) + "\":" + dump(header.metadata, "the metadata");
  // Written by hand, because an object of the JSON library would not preserve the order of the
  // data.
  for (const TensorEntry& tensor : header.tensors)
    text += "," + dump(tensor.name, "a tensor's name") +
            ":{\"dtype\":" + dump(tensor.dtype, "a dtype") +
            ",\"shape\":" + Json(tensor.shape).dump() +
            ",\"data_offsets\":" + Json({tensor.begin, tensor.end}).dump() + "}";
  if (text.size() == length_bytes) text += ",";
  text[length_bytes] = '{';
  text += "}";
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  const std::uint64_t length = text.size() - length_bytes;
  std::memcpy(text.data(), &length, length_bytes);
  return text;
}

std::string format_index(const std::map<std::string, std::string>& file_of_tensor,
                         std::int64_t data_bytes) {
  const Json index = {{"metadata", {{"total_size", data_bytes}}}, {"weight_map", file_of_tensor}};
  return index.dump(2) + "\n";
}

std::map<std::string, std::string> parse_index(const std::string& path, std::string_view text) {
  const Json document = parse_json(path, text);
  std::map<std::string, std::string> file_of_tensor;
  JsonReader(path, document)("weight_map", file_of_tensor);
  return file_of_tensor;
}

}  // namespace zero::checkpoint
