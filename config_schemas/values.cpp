#include "config_schemas/values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

namespace zero::config_schemas {
namespace {

// Shortest text that reads back as the same number.
template <class T>
std::string exact(T value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string interval(const Range& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  if (low && high && !range.above_low && !range.below_high)
    return " from " + exact(range.low) + " to " + exact(range.high);
  if (low && high)
    return std::string(" in ") + (range.above_low ? "(" : "[") + exact(range.low) + ", " +
           exact(range.high) + (range.below_high ? ")" : "]");
  if (low) return (range.above_low ? " greater than " : " of at least ") + exact(range.low);
  return "";
}

bool contains(const Range& range, double value) {
  return (range.above_low ? value > range.low : value >= range.low) &&
         (range.below_high ? value < range.high : value <= range.high);
}

std::string wrong(const Key& key, const Node& node, std::string_view what) {
  return shown(node) + " " + std::string(what) + "; allowed: " + allowed_values(key);
}

// Where a value goes that no member of Config wants.
struct Scratch {
  bool truth = false;
  std::int64_t integer = 0;
  double number = 0, second = 0;
  std::string text;

  Target target(const Key& key) {
    switch (key.type) {
      case Type::boolean:
        return &truth;
      case Type::integer:
        return &integer;
      case Type::number:
        return &number;
      case Type::pair:
        return Pair{&number, &second};
      case Type::choice:
      case Type::text:
        return &text;
      default:
        return std::monostate{};
    }
  }
};

bool has_form(const Key& key, const Node& node) {
  switch (key.type) {
    case Type::text:
      return node.kind == Node::Kind::string;
    case Type::list:
      return node.kind == Node::Kind::array;
    case Type::block:
      return node.kind == Node::Kind::object;
    default:
      return true;
  }
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) {
    return std::string_view(" \t\r\n\f\v").find(c) != std::string_view::npos;
  };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

template <class T>
std::optional<T> read_all(std::string_view text) {
  T value{};
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The text of a number: of a number or numeric string, and of true and false where DeepSpeed
// converts.
std::optional<std::string_view> numeric_text(const Key& key, const Node& node) {
  if (node.kind == Node::Kind::number) return node.text;
  if (key.strict) return std::nullopt;
  if (node.kind == Node::Kind::string) return trimmed(node.text);
  if (node.kind == Node::Kind::boolean && converts_values(key.path))
    return node.text == "true" ? "1" : "0";
  return std::nullopt;
}

std::optional<double> to_number(const Key& key, const Node& node) {
  const auto text = numeric_text(key, node);
  const auto value = text ? read_all<double>(*text) : std::nullopt;
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// Counts may be written 5e8 or 16.0: a fraction of zero is an integer.
template <class T>
std::optional<T> to_integer(const Key& key, const Node& node) {
  const auto text = numeric_text(key, node);
  if (!text) return std::nullopt;
  if (const auto value = read_all<T>(*text)) return value;
  const bool exponent = text->find_first_of("eE") != std::string_view::npos;
  if (key.strict || (exponent && node.kind == Node::Kind::string)) return std::nullopt;
  const auto value = read_all<double>(*text);
  const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
  const bool whole = value && *value == std::floor(*value) && std::abs(*value) < end;
  if (!whole || (*value < 0 && std::is_unsigned_v<T>)) return std::nullopt;
  return static_cast<T>(*value);
}

std::optional<bool> to_boolean(const Key& key, const Node& node) {
  if (node.kind == Node::Kind::boolean) return node.text == "true";
  if (node.kind == Node::Kind::number) {
    const auto value = read_all<double>(node.text);
    if (value == 0.0 || value == 1.0) return value == 1.0;
    return std::nullopt;
  }
  if (node.kind != Node::Kind::string || !converts_values(key.path)) return std::nullopt;
  const std::string text = lower_case(trimmed(node.text));
  for (const auto* yes : {"true", "yes", "on", "t", "y", "1"})
    if (text == yes) return true;
  for (const auto* no : {"false", "no", "off", "f", "n", "0"})
    if (text == no) return false;
  return std::nullopt;
}

std::optional<std::string_view> to_choice(const Key& key, const Node& node) {
  // 0.19 without quotes is a number.
  if (node.kind != Node::Kind::string && node.kind != Node::Kind::number) return std::nullopt;
  for (const auto choice : key.choices)
    if (choice == node.text || (key.any_case && lower_case(choice) == lower_case(node.text)))
      return choice;
  return std::nullopt;
}

std::string unknown_choice(const Key& key, const Node& node) {
  for (const RefusedChoice& choice : key.refused_choices)
    if (node.kind == Node::Kind::string && lower_case(choice.name) == lower_case(node.text))
      return shown(node) + ": " + std::string(choice.reason);
  return wrong(key, node, "is not known");
}

// Of PyTorch's and DeepSpeed's names of the floating types.
DType dtype_named(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "bf16" || name == "bfloat16") return DType::bf16;
  return name == "fp16" || name == "float16" || name == "half" ? DType::fp16 : DType::fp32;
}

bool is_whole_number(const Node& node) {
  const auto value = node.kind == Node::Kind::number ? read_all<double>(node.text) : std::nullopt;
  return value && *value == std::floor(*value);
}

// Stores values; the result is what is wrong.
struct Setter {
  const Key& key;
  const Node& node;

  template <class T>
  std::string store_integer(T& member) const {
    const auto value = to_integer<T>(key, node);
    if (value && contains(key.range, static_cast<double>(*value))) {
      member = *value;
      return "";
    }
    if (value || (is_whole_number(node) && !key.strict)) return wrong(key, node, "is out of range");
    return wrong(key, node, "is not an integer");
  }

  std::string store_number(double& member) const {
    const auto value = to_number(key, node);
    if (!value) return wrong(key, node, "is not a number");
    if (!contains(key.range, *value)) return wrong(key, node, "is out of range");
    member = *value;
    return "";
  }

  std::string operator()(std::monostate) const { return ""; }

  std::string operator()(bool* member) const {
    const auto value = to_boolean(key, node);
    if (value) *member = *value;
    return value ? "" : wrong(key, node, "is neither true nor false");
  }

  std::string operator()(int* member) const {
    if (key.type == Type::group_size && node.kind == Node::Kind::string && node.text == "node") {
      *member = 0;
      return "";
    }
    return store_integer(*member);
  }
  std::string operator()(std::int64_t* member) const { return store_integer(*member); }
  std::string operator()(std::uint64_t* member) const { return store_integer(*member); }
  std::string operator()(double* member) const { return store_number(*member); }

  std::string operator()(std::optional<std::int64_t>* member) const {
    std::int64_t value = 0;
    std::string problem = store_integer(value);
    if (problem.empty()) *member = value;
    return problem;
  }

  std::string operator()(std::optional<double>* member) const {
    double value = 0;
    std::string problem = store_number(value);
    if (problem.empty()) *member = value;
    return problem;
  }

  std::string operator()(std::optional<DType>* member) const {
    const auto value = to_choice(key, node);
    if (!value) return unknown_choice(key, node);
    *member = dtype_named(*value);
    return "";
  }

  std::string operator()(std::string* member) const {
    const auto value =
        key.type == Type::text ? std::optional<std::string_view>(node.text) : to_choice(key, node);
    if (value) *member = *value;
    return value ? "" : unknown_choice(key, node);
  }

  std::string operator()(GradientSync* member) const {
    const auto value = to_choice(key, node);
    if (value) *member = *value == "each" ? GradientSync::each : GradientSync::last;
    return value ? "" : wrong(key, node, "is not known");
  }

  std::string operator()(OffloadUpdate* member) const {
    const auto value = to_choice(key, node);
    if (value)
      *member = *value == "delayed"       ? OffloadUpdate::delayed
                : *value == "speculative" ? OffloadUpdate::speculative
                                          : OffloadUpdate::exact;
    return value ? "" : unknown_choice(key, node);
  }

  std::string operator()(std::optional<std::pair<double, double>>* member) const {
    std::pair<double, double> values;
    std::string problem = (*this)(Pair{&values.first, &values.second});
    if (problem.empty()) *member = values;
    return problem;
  }

  std::string operator()(std::optional<bool>* member) const {
    bool value = false;
    std::string problem = (*this)(&value);
    if (problem.empty()) *member = value;
    return problem;
  }

  std::string operator()(OffloadDevice* member) const {
    const auto value = to_choice(key, node);
    if (value)
      *member = *value == "nvme"  ? OffloadDevice::nvme
                : *value == "cpu" ? OffloadDevice::cpu
                                  : OffloadDevice::none;
    return value ? "" : unknown_choice(key, node);
  }

  std::string operator()(const Pair& members) const {
    if (node.kind != Node::Kind::array || node.members.size() != 2)
      return wrong(key, node, "is not an array of two numbers");
    for (std::size_t i = 0; i < 2; ++i) {
      const Setter element{key, node.members[i].value};
      if (std::string problem = element.store_number(*members[i]); !problem.empty()) return problem;
    }
    return "";
  }
};

struct ResetToAbsent {
  template <class T>
  void operator()(std::optional<T>* member) const {
    member->reset();
  }
  void operator()(std::int64_t* member) const { *member = 0; }
  template <class T>
  void operator()(const T&) const {}
};

struct Shower {
  const Key& key;

  std::string operator()(std::monostate) const { return not_set; }
  std::string operator()(const bool* member) const { return *member ? "true" : "false"; }
  std::string operator()(const int* member) const {
    return key.type == Type::group_size && *member == 0 ? "node" : exact(*member);
  }
  std::string operator()(const std::int64_t* member) const {
    return key.zero_is_absent && *member == 0 ? not_set : exact(*member);
  }
  std::string operator()(const std::uint64_t* member) const { return exact(*member); }
  std::string operator()(const double* member) const { return exact(*member); }
  std::string operator()(const std::string* member) const {
    return member->empty() ? not_set : *member;
  }
  template <class T>
  std::string operator()(const std::optional<T>* member) const {
    return *member ? exact(**member) : not_set;
  }
  std::string operator()(const std::optional<std::pair<double, double>>* member) const {
    if (!*member) return not_set;
    return "[" + exact((*member)->first) + ", " + exact((*member)->second) + "]";
  }
  std::string operator()(const std::optional<DType>* member) const {
    return *member ? name_of(**member) : not_set;
  }
  std::string operator()(const GradientSync* member) const {
    if (*member == GradientSync::automatic) return not_set;
    return *member == GradientSync::each ? "each" : "last";
  }
  std::string operator()(const OffloadUpdate* member) const {
    return *member == OffloadUpdate::delayed       ? "delayed"
           : *member == OffloadUpdate::speculative ? "speculative"
                                                   : "exact";
  }
  std::string operator()(const std::optional<bool>* member) const {
    return *member ? (**member ? "true" : "false") : not_set;
  }
  std::string operator()(const OffloadDevice* member) const {
    return *member == OffloadDevice::nvme ? "nvme" : *member == OffloadDevice::cpu ? "cpu" : "none";
  }
  std::string operator()(const Pair& members) const {
    return "[" + exact(*members[0]) + ", " + exact(*members[1]) + "]";
  }
};

}  // namespace

std::string allowed_values(const Key& key) {
  std::string text;
  switch (key.type) {
    case Type::section:
      text = "an object";
      break;
    case Type::boolean:
      text = "true or false";
      break;
    case Type::integer:
      text = "an integer" + interval(key.range);
      break;
    case Type::number:
      text = "a number" + interval(key.range);
      break;
    case Type::pair:
      text = "an array of two numbers" + interval(key.range);
      break;
    case Type::group_size:
      text = "\"node\" or an integer" + interval(key.range);
      break;
    case Type::choice:
      for (const auto choice : key.choices)
        text += (text.empty() ? "one of " : ", ") + std::string(choice);
      break;
    case Type::text:
      text = "a string";
      break;
    case Type::list:
      text = "an array";
      break;
    case Type::block:
      text = "an object";
      break;
    case Type::any:
      text = "any value";
  }
  if (key.strict) text += ", written without point or exponent";
  return key.nullable ? text + ", or null" : text;
}

std::string shown(const Node& node) {
  switch (node.kind) {
    case Node::Kind::object:
      return "an object";
    case Node::Kind::array:
      return node.members.empty() ? "[]" : "an array";
    case Node::Kind::string:
      return '"' + printable(node.text) + '"';
    default:
      return printable(node.text);
  }
}

bool takes_auto(const Key& key) {
  return key.initial == "auto" || key.type == Type::text || key.type == Type::block;
}

Outcome set_value(const Key& key, const std::string& name, const Node& node, Config& config) {
  Scratch scratch;
  const Target target = key.target != nullptr ? key.target(config, name) : scratch.target(key);
  if (node.kind == Node::Kind::null && key.type != Type::any) {
    if (!key.nullable) return {"null is no value here; allowed: " + allowed_values(key), ""};
    std::visit(ResetToAbsent{}, target);
    return {"", key.target != nullptr ? show_value(key, name, config) : "null"};
  }
  if (!has_form(key, node)) return {wrong(key, node, "has another type"), ""};
  if (std::holds_alternative<std::monostate>(target)) {
    const bool plain = node.kind == Node::Kind::string;
    return {"", plain ? printable(node.text) : shown(node)};
  }
  std::string problem = std::visit(Setter{key, node}, target);
  if (!problem.empty()) return {problem, ""};
  return {"", std::visit(Shower{key}, target)};
}

std::string show_value(const Key& key, const std::string& name, Config& config) {
  if (key.target == nullptr) return show_default(key);
  return std::visit(Shower{key}, key.target(config, name));
}

std::string show_default(const Key& key) {
  if (key.target == nullptr) return key.initial.empty() ? not_set : std::string(key.initial);
  Config defaults;
  return show_value(key, "NAME", defaults);
}

}  // namespace zero::config_schemas
