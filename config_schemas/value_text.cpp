// What values and rows look like in messages, tables and documents.
#include <charconv>
#include <cmath>
#include <limits>

#include "config_schemas/values.h"

namespace zero::config_schemas {
namespace {

// Shortest text that reads back as the same number.
template <class T>
std::string exact(T value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

// The bound as an integer would be written.
std::string bound(double value) {
  if (value == largest_integer) return exact(std::numeric_limits<std::int64_t>::max());
  if (value == largest_unsigned) return exact(std::numeric_limits<std::uint64_t>::max());
  return exact(value);
}

std::string interval(const Range& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  if (low && high && !range.above_low && !range.below_high)
    return " from " + bound(range.low) + " to " + bound(range.high);
  if (low && high)
    return std::string(" in ") + (range.above_low ? "(" : "[") + bound(range.low) + ", " +
           bound(range.high) + (range.below_high ? ")" : "]");
  return "";
}

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
  if (key.strict && key.type == Type::integer) text += ", written without point or exponent";
  if (key.infinity_is_null) text += ", \"inf\"";
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

std::string show_target(const Key& key, const Target& target) {
  return std::visit(Shower{key}, target);
}

std::string show_value(const Key& key, const std::string& name, Config& config) {
  if (key.target == nullptr) return show_default(key);
  return show_target(key, key.target(config, name));
}

std::string show_default(const Key& key) {
  if (key.target == nullptr) return key.initial.empty() ? not_set : std::string(key.initial);
  Config defaults;
  return show_value(key, "NAME", defaults);
}

}  // namespace zero::config_schemas
