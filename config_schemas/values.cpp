#include "config_schemas/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "zero/base/number_text.h"

namespace zero::config_schemas {
namespace {

// Returns the bound, written as an integer if possible.
std::string wrong(const Key& key, const Node& node, std::string_view what) {
  return shown(node) + " " + std::string(what) + "; allowed: " + allowed_values(key);
}

// Takes the values of keys that set no member of Config.
struct Scratch {
  bool truth = false;
  std::int64_t integer = 0;
  double number = 0, second = 0;
  std::string text;

  detail::FieldRef target(const Key& key) {
    switch (key.type) {
      case Type::boolean:
        return &truth;
      case Type::integer:
        return &integer;
      case Type::number:
        return &number;
      case Type::pair:
        return detail::Pair{&number, &second};
      case Type::choice:
      case Type::text:
      case Type::text_or_integers:
        return &text;
      default:
        return std::monostate{};
    }
  }
};

// Characters that Python's float() and int() ignore around a number.
constexpr std::string_view python_blanks = " \t\r\n\f\v";

bool has_form(const Key& key, const Node& node) {
  switch (key.type) {
    case Type::text:
      return node.kind == Node::Kind::string;
    case Type::text_or_integers:
      return node.kind == Node::Kind::string || node.kind == Node::Kind::array;
    case Type::list:
      return node.kind == Node::Kind::array;
    case Type::block:
      return node.kind == Node::Kind::object;
    default:
      return true;
  }
}

template <class T>
std::optional<T> read_all(std::string_view text) {
  T value{};
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string text_of_array(const Node& array) {
  std::string text;
  for (const Member& member : array.members) text += (text.empty() ? "" : ", ") + member.value.text;
  return "[" + text + "]";
}

// Returns the text of a number or numeric string, and of true and false if DeepSpeed converts them.
std::optional<std::string_view> numeric_text(const Key& key, const Node& node) {
  if (node.kind == Node::Kind::number) return node.text;
  if (key.strict) return std::nullopt;
  if (node.kind == Node::Kind::string) return trimmed(node.text, python_blanks);
  if (node.kind == Node::Kind::boolean && converts_values(key.path))
    return node.text == "true" ? "1" : "0";
  return std::nullopt;
}

std::optional<double> to_number(const Key& key, const Node& node) {
  const auto text = numeric_text(key, node);
  const auto value = text ? read_all<double>(*text) : std::nullopt;
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// Counts may be written as 5e8 or 16.0.
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
  const std::string text = lower_case(trimmed(node.text, python_blanks));
  for (const auto* yes : {"true", "yes", "on", "t", "y", "1"})
    if (text == yes) return true;
  for (const auto* no : {"false", "no", "off", "f", "n", "0"})
    if (text == no) return false;
  return std::nullopt;
}

std::optional<std::string_view> to_choice(const Key& key, const Node& node) {
  // A version such as 0.19 is a number if written without quotes.
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

// Converts PyTorch's or DeepSpeed's name of a floating-point type.
DType dtype_named(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "bf16" || name == "bfloat16") return DType::bf16;
  return name == "fp16" || name == "float16" || name == "half" ? DType::fp16 : DType::fp32;
}

bool is_infinity(const Node& node) {
  const std::string text = lower_case(trimmed(node.text, python_blanks));
  return node.kind == Node::Kind::string && (text == "inf" || text == "infinity");
}

bool is_whole_number(const Node& node) {
  const auto value = node.kind == Node::Kind::number ? read_all<double>(node.text) : std::nullopt;
  return value && *value == std::floor(*value);
}

// Stores a value; returns its problem, or an empty text.
struct Setter {
  const Key& key;
  const Node& node;

  template <class T>
  std::string store_integer(T& member) const {
    const auto value = to_integer<T>(key, node);
    if (value && key.range.contains(static_cast<double>(*value))) {
      member = *value;
      return "";
    }
    if (value || (is_whole_number(node) && !key.strict)) return wrong(key, node, "is out of range");
    return wrong(key, node, "is not an integer");
  }

  std::string store_number(double& member) const {
    if (key.list_of_one && node.kind == Node::Kind::array)
      return wrong(key, node,
                   "with a value for each group is not supported: groups take shares of one "
                   "schedule, by zero_core.param_groups.NAME.lr_scale");
    const auto value = to_number(key, node);
    if (!value) return wrong(key, node, "is not a number");
    if (!key.range.contains(*value)) return wrong(key, node, "is out of range");
    member = *value;
    return "";
  }

  std::string operator()(std::monostate) const { return ""; }

  std::string operator()(bool* member) const {
    const auto value = to_boolean(key, node);
    if (value) *member = *value;
    return value ? "" : wrong(key, node, "is neither true nor false");
  }

  // 0: the ranks of one node.
  template <std::integral T>
  std::string store_group_size(T& member) const {
    const bool by_node = (key.type == Type::group_size || key.type == Type::group_sizes) &&
                         node.kind == Node::Kind::string && node.text == "node";
    if (!by_node) return store_integer(member);
    member = 0;
    return "";
  }

  std::string operator()(int* member) const { return store_group_size(*member); }
  std::string operator()(std::int64_t* member) const { return store_group_size(*member); }
  std::string operator()(const detail::GroupSizes& members) const {
    members.wider->clear();
    if (node.kind != Node::Kind::array) return store_group_size(*members.innermost);
    const std::string nested =
        "is not an array of groups, each larger than the one before and a "
        "multiple of it";
    for (const Member& member : node.members) {
      int size = 0;
      const Setter element{key, member.value};
      if (std::string problem = element.store_integer(size); !problem.empty()) return problem;
      const bool first = &member == &node.members.front();
      const int inner = members.wider->empty() ? *members.innermost : members.wider->back();
      if (!first && (size <= inner || size % inner != 0)) return wrong(key, node, nested);
      if (first)
        *members.innermost = size;
      else
        members.wider->push_back(size);
    }
    return node.members.empty() || std::ssize(node.members) > most_reduce_groups
               ? wrong(key, node, nested)
               : "";
  }

  std::string operator()(std::vector<std::int64_t>* member) const {
    const bool array = node.kind == Node::Kind::array && !node.members.empty();
    if (!array) return wrong(key, node, "is not an array of integers");
    member->clear();
    for (const Member& each : node.members)
      if (std::string problem = Setter{key, each.value}.store_integer(member->emplace_back());
          !problem.empty())
        return problem;
    return "";
  }

  std::string operator()(std::uint64_t* member) const { return store_integer(*member); }
  std::string operator()(double* member) const { return store_number(*member); }

  template <class T>
  std::string operator()(std::optional<T>* member) const {
    T value{};
    std::string problem = (*this)(&value);
    if (problem.empty()) *member = value;
    return problem;
  }

  template <class T, class Convert>
  std::string store_choice(T& member, Convert convert) const {
    const auto value = to_choice(key, node);
    if (value) member = convert(*value);
    return value ? "" : unknown_choice(key, node);
  }

  std::string operator()(DType* member) const { return store_choice(*member, dtype_named); }

  std::string operator()(std::string* member) const {
    if (key.type == Type::choice)
      return store_choice(*member, [](std::string_view name) { return std::string(name); });
    *member = node.kind == Node::Kind::array ? text_of_array(node) : node.text;
    return "";
  }

  std::string operator()(GradientSync* member) const {
    return store_choice(*member, [](std::string_view name) {
      return name == "each"    ? GradientSync::each
             : name == "inner" ? GradientSync::inner
                               : GradientSync::last;
    });
  }

  std::string operator()(std::pair<double, double>* member) const {
    return (*this)(detail::Pair{&member->first, &member->second});
  }

  std::string operator()(OffloadDevice* member) const {
    return store_choice(*member, [](std::string_view name) {
      return name == "nvme"  ? OffloadDevice::nvme
             : name == "cpu" ? OffloadDevice::cpu
                             : OffloadDevice::none;
    });
  }

  std::string operator()(const detail::Pair& members) const {
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

bool is_numeric(const Key& key) {
  return key.type == Type::integer || key.type == Type::number || key.type == Type::group_size ||
         key.type == Type::group_sizes;
}

Outcome read_value(const Key& key, const std::string& name, const Node& node, Config& config) {
  Scratch scratch;
  const detail::FieldRef target = key.of != nullptr ? key.of(config, name) : scratch.target(key);
  if ((node.kind == Node::Kind::null || (key.infinity_is_null && is_infinity(node))) &&
      key.type != Type::any) {
    if (!key.nullable) return {"null is no value here; allowed: " + allowed_values(key), ""};
    std::visit(ResetToAbsent{}, target);
    return {"", key.of != nullptr ? show_value(key, name, config) : "null"};
  }
  if (!has_form(key, node)) return {wrong(key, node, "has another type"), ""};
  if (std::holds_alternative<std::monostate>(target)) {
    const bool plain = node.kind == Node::Kind::string;
    return {"", plain ? printable(node.text) : shown(node)};
  }
  std::string problem = std::visit(Setter{key, node}, target);
  if (!problem.empty()) return {problem, ""};
  return {"", detail::text_of(target, key.of != nullptr ? key.zero : "0")};
}

}  // namespace

bool takes_auto(const Key& key) {
  const bool text = key.type == Type::text && !converts_values(key.path);
  return key.initial == "auto" || text || key.type == Type::block;
}

bool passes_unread(const Key& key) {
  if (key.status != Status::no_effect || key.strict || key.type == Type::choice) return false;
  return key.type == Type::any || !is_closed(section_of(key.path));
}

bool is_quoted(const Key& key, const Node& node) {
  if (key.type == Type::pair)
    return std::ranges::any_of(
        node.members, [](const Member& member) { return member.value.kind == Node::Kind::string; });
  if (node.kind != Node::Kind::string) return false;
  if (key.type == Type::boolean) return to_boolean(key, node).has_value();
  return is_numeric(key) && to_number(key, node).has_value();
}

Outcome set_value(const Key& key, const std::string& name, const Node& node, Config& config) {
  if (key.list_of_one && node.kind == Node::Kind::array && node.members.size() == 1)
    return set_value(key, name, node.members[0].value, config);
  Outcome outcome = read_value(key, name, node, config);
  const auto number = to_number(key, node);
  const bool out_of_range = number && is_numeric(key) && !key.range.contains(*number);
  if (!outcome.problem.empty() && passes_unread(key) && !out_of_range) return {"", shown(node)};
  return outcome;
}

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
      text = "an integer" + key.range.text();
      break;
    case Type::number:
      text = "a number" + key.range.text();
      break;
    case Type::pair:
      text = "an array of two numbers" + key.range.text();
      break;
    case Type::group_size:
      text = "\"node\" or an integer" + key.range.text();
      break;
    case Type::group_sizes:
      text = "\"node\", an integer" + key.range.text() + ", or an array of up to " +
             std::to_string(most_reduce_groups) + " of them";
      break;
    case Type::integers:
      text = "an array of integers" + key.range.text();
      break;
    case Type::choice:
      for (const auto choice : key.choices)
        text += (text.empty() ? "one of " : ", ") + std::string(choice);
      break;
    case Type::text:
      text = "a string";
      break;
    case Type::text_or_integers:
      text = "a string or an array of integers";
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
  if (key.strict && key.type == Type::integer) text += ", written without point or exponent";
  if (key.infinity_is_null) text += ", \"inf\"";
  if (key.list_of_one) text += ", alone or as a list of one";
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

std::string show_value(const Key& key, const std::string& name, Config& config) {
  return key.of == nullptr ? show_default(key) : detail::text_of(key.of(config, name), key.zero);
}

std::string show_default(const Key& key) {
  if (key.of == nullptr) return key.initial.empty() ? not_set : std::string(key.initial);
  Config defaults;
  return show_value(key, "NAME", defaults);
}

}  // namespace zero::config_schemas
