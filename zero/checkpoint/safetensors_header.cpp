#include "zero/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "zero/base/error.h"

namespace zero::checkpoint {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 22> dtypes{{
    {"F64", 64},    {"F32", 32},    {"F16", 16},        {"BF16", 16},       {"I64", 64},
    {"I32", 32},    {"I16", 16},    {"I8", 8},          {"U64", 64},        {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8},        {"C64", 64},        {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
}};

// Accepts exactly the three levels of the format, so that nothing is ever nested deeper.
class HeaderBuilder final : public nlohmann::json::json_sax_t {
 public:
  explicit HeaderBuilder(SafetensorsHeader& header) : header_(header) {}

  const std::string& problem() const { return problem_; }

  bool null() override { return misplaced("null"); }
  bool boolean(bool) override { return misplaced("true or false"); }
  bool number_integer(number_integer_t) override { return misplaced("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return misplaced("a number with a fraction or exponent");
  }
  bool binary(binary_t&) override { return misplaced("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return misplaced("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return refuse("the number " + std::to_string(value) + " is too large");
    const std::size_t most = field_ == Field::shape ? max_rank : 2;
    if (numbers().size() == most)
      return refuse("more than " + std::to_string(most) + " numbers in " + key_);
    numbers().push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ != 2 || (!in_metadata_ && field_ != Field::dtype)) return misplaced("a string");
    if (!in_metadata_)
      entry_.dtype = value;
    else if (!header_.metadata.emplace(key_, value).second)
      return refuse("the metadata key " + in_quotes(key_) + " is given twice");
    return true;
  }

  bool start_object(std::size_t) override {
    if (depth_ >= 2) return misplaced("an object");
    ++depth_;
    return true;
  }

  bool key(string_t& value) override {
    key_ = value;
    if (depth_ == 1) return start_entry();
    if (in_metadata_) return true;
    field_ = value == "dtype"          ? Field::dtype
             : value == "shape"        ? Field::shape
             : value == "data_offsets" ? Field::offsets
                                       : Field::none;
    if (field_ == Field::none) return refuse("unknown field " + in_quotes(value));
    const unsigned bit = 1u << static_cast<unsigned>(field_);
    if ((seen_ & bit) != 0) return refuse("the field " + value + " is given twice");
    seen_ |= bit;
    return true;
  }

  bool end_object() override {
    if (depth_-- != 2 || in_metadata_) return true;
    constexpr unsigned all = (1u << static_cast<unsigned>(Field::dtype)) |
                             (1u << static_cast<unsigned>(Field::shape)) |
                             (1u << static_cast<unsigned>(Field::offsets));
    if (seen_ != all) return refuse("dtype, shape and data_offsets are needed");
    if (offsets_.size() != 2) return refuse("data_offsets needs two numbers");
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.tensors.push_back(std::move(entry_));
    return true;
  }

  bool start_array(std::size_t) override {
    const bool expected = depth_ == 2 && (field_ == Field::shape || field_ == Field::offsets);
    if (!expected || in_metadata_) return misplaced("an array");
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem_ = "the header is not valid JSON at its byte " + std::to_string(position);
    return false;
  }

 private:
  enum class Field : unsigned { none, dtype, shape, offsets };

  std::vector<std::int64_t>& numbers() { return field_ == Field::shape ? entry_.shape : offsets_; }

  bool start_entry() {
    entry_ = {};
    offsets_.clear();
    field_ = Field::none;
    seen_ = 0;
    in_metadata_ = key_ == "__metadata__";
    if (in_metadata_) {
      if (std::exchange(has_metadata_, true)) return refuse("__metadata__ is given twice");
      return true;
    }
    if (header_.tensors.size() == max_tensors)
      return refuse("more than " + std::to_string(max_tensors) + " tensors");
    entry_.name = key_;
    const std::string wrong = name_problem(key_);
    return wrong.empty() || refuse(wrong);
  }

  bool refuse(const std::string& reason) {
    problem_ = entry_.name.empty() ? reason : "tensor " + in_quotes(entry_.name) + ": " + reason;
    return false;
  }

  bool misplaced(const std::string& what) {
    return refuse("the header has " + what + " where " +
                  (depth_ == 0              ? "an object belongs"
                   : depth_ == 1            ? "the object of a tensor belongs"
                   : in_metadata_           ? "a string of the metadata belongs"
                   : field_ == Field::dtype ? "the dtype, a string, belongs"
                   : field_ == Field::shape ? "the shape, an array of counts, belongs"
                                            : "data_offsets, an array of two counts, belongs"));
  }

  SafetensorsHeader& header_;
  std::string problem_, key_;
  TensorEntry entry_;
  std::vector<std::int64_t> offsets_;
  Field field_ = Field::none;
  unsigned seen_ = 0;
  int depth_ = 0;
  bool in_metadata_ = false, has_metadata_ = false;
};

// Tensors in the order of their data must touch each other and fill the file: a byte that belongs
// to two tensors, or to none, is how damaged and hostile files look.
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

std::string dump(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw UsageError(in_quotes(text) + " is not UTF-8 and cannot be written to a safetensors file");
  }
}

std::string dump(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (const auto n : numbers) text += (text.size() > 1 ? "," : "") + std::to_string(n);
  return text + "]";
}

}  // namespace

std::optional<int> bits_of(std::string_view dtype) {
  const auto found = std::ranges::find(dtypes, dtype, &std::pair<std::string_view, int>::first);
  if (found == dtypes.end()) return std::nullopt;
  return found->second;
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
    // Control characters: C0, DEL, and C1, which is 0xc2 and a byte below 0xa0 in UTF-8.
    const bool c1 =
        byte == 0xc2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xa0;
    if (byte < 0x20 || byte == 0x7f || c1) return "the name has a control character";
  }
  return "";
}

std::string in_quotes(std::string_view name) {
  std::string result = "\"";
  for (const char c : name) {
    if (result.size() > 100) return result + "...\"";
    const auto byte = static_cast<unsigned char>(c);
    std::array<char, 5> escaped{c};
    if (byte < 0x20 || byte >= 0x7f)
      std::snprintf(escaped.data(), escaped.size(), "\\x%02x", static_cast<unsigned>(byte));
    result += escaped.data();
  }
  return result + "\"";
}

SafetensorsHeader parse_header(const std::string& path, std::string_view json,
                               std::int64_t data_bytes) {
  SafetensorsHeader header;
  HeaderBuilder builder(header);
  // The parser would take a NUL for the end of the text.
  if (json.find('\0') != std::string_view::npos)
    throw LoadError(path + ": the header contains a NUL byte");
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder))
    throw LoadError(path + ": " + builder.problem());
  std::ranges::stable_sort(header.tensors, {},
                           [](const TensorEntry& t) { return std::pair(t.begin, t.end); });
  if (const auto problem = coverage_problem(header.tensors, data_bytes); !problem.empty())
    throw LoadError(path + ": " + problem);
  return header;
}

std::string format_header(const SafetensorsHeader& header, std::size_t alignment) {
  std::string text = "{";
  if (!header.metadata.empty()) {
    text += "\"__metadata__\":{";
    const char* separator = "";
    for (const auto& [key, value] : header.metadata) {
      text += separator + dump(key) + ":" + dump(value);
      separator = ",";
    }
    text += "}";
  }
  for (const TensorEntry& tensor : header.tensors) {
    if (text.size() > 1) text += ",";
    text += dump(tensor.name) + ":{\"dtype\":" + dump(tensor.dtype) +
            ",\"shape\":" + dump(tensor.shape) + ",\"data_offsets\":[" +
            std::to_string(tensor.begin) + "," + std::to_string(tensor.end) + "]}";
  }
  text += "}";
  constexpr std::size_t length_bytes = 8;
  const std::size_t end = text.size() + length_bytes;
  text.resize((end + alignment - 1) / alignment * alignment - length_bytes, ' ');
  return text;
}

}  // namespace zero::checkpoint
