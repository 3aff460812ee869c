#include "zero/plan/config_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <type_traits>

#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"

namespace zero {
namespace detail {
namespace {

std::string pair_text(double first, double second) {
  return "[" + shortest_text(first) + ", " + shortest_text(second) + "]";
}

struct Shower {
  std::string_view zero;

  std::string operator()(std::monostate) const { return not_set; }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::string* value) const {
    return value->empty() ? not_set : *value;
  }
  std::string operator()(const double* value) const { return shortest_text(*value); }
  template <std::integral T>
  std::string operator()(const T* value) const {
    return *value == 0 ? std::string(zero) : std::to_string(*value);
  }
  std::string operator()(const std::pair<double, double>* value) const {
    return pair_text(value->first, value->second);
  }
  std::string operator()(const Pair& value) const { return pair_text(*value[0], *value[1]); }
  std::string operator()(const GroupSizes& value) const {
    const std::string innermost = (*this)(value.innermost);
    if (value.wider->empty()) return innermost;
    std::string text = "[" + innermost;
    for (const int size : *value.wider) text += ", " + std::to_string(size);
    return text + "]";
  }
  std::string operator()(const std::vector<std::int64_t>* value) const {
    std::string text;
    for (const std::int64_t each : *value)
      text += (text.empty() ? "[" : ", ") + std::to_string(each);
    return text.empty() ? not_set : text + "]";
  }
  std::string operator()(const DType* value) const { return name_of(*value); }
  std::string operator()(const GradientSync* value) const {
    if (*value == GradientSync::automatic) return not_set;
    return *value == GradientSync::each ? "each" : *value == GradientSync::inner ? "inner" : "last";
  }
  std::string operator()(const OffloadDevice* value) const {
    return *value == OffloadDevice::nvme ? "nvme" : *value == OffloadDevice::cpu ? "cpu" : "none";
  }
  template <class T>
  std::string operator()(const std::optional<T>* value) const {
    return *value ? (*this)(&**value) : not_set;
  }
};

}  // namespace

const std::string& type_for(std::string_view path, const Config& config) {
  return path.starts_with("optimizer.") ? config.optimizer.type : config.scheduler.type;
}

bool applies(std::string_view path, std::span<const std::string_view> owners,
             const Config& config) {
  const std::string type = lower_case(type_for(path, config));
  return owners.empty() ||
         std::ranges::any_of(owners, [&](auto owner) { return lower_case(owner) == type; });
}

std::string text_of(const FieldRef& value, std::string_view zero) {
  return std::visit(Shower{zero}, value);
}

namespace {

// Calls `each` with every value's path, in which names of groups replace "*".
template <class Each>
void for_values(const Config& config, const Each& each) {
  Config copy = config;  // fields refer to mutable members
  for (const Key& key : honored_keys()) {
    if (key.of == nullptr) continue;
    const auto star = key.path.find('*');
    if (star == std::string::npos) {
      each(key.path, key, key.of(copy, ""));
      continue;
    }
    for (const auto& [name, group] : config.zero_core.param_groups) {
      std::string path = key.path;
      path.replace(star, 1, printable(name));
      each(path, key, key.of(copy, name));
    }
  }
}

// Whether a member has a value that a file could have.
struct InRange {
  const Key& key;

  // Some integers have 0 for a value that a file gives as a word, or not at all.
  bool is_fine(double value) const { return key.range.contains(value); }
  bool is_fine(std::int64_t value) const {
    return (value == 0 && key.zero != "0") || is_fine(static_cast<double>(value));
  }
  template <class T>
  bool operator()(const T& value) const {
    if constexpr (std::is_same_v<T, double*>)
      return is_fine(*value);
    else if constexpr (std::is_same_v<T, int*> || std::is_same_v<T, std::int64_t*>)
      return is_fine(std::int64_t{*value});
    else if constexpr (std::is_same_v<T, std::optional<double>*> ||
                       std::is_same_v<T, std::optional<std::int64_t>*>)
      return !*value || is_fine(**value);
    else if constexpr (std::is_same_v<T, std::optional<std::pair<double, double>>*>)
      return !*value || (is_fine((*value)->first) && is_fine((*value)->second));
    else if constexpr (std::is_same_v<T, Pair>)
      return is_fine(*value[0]) && is_fine(*value[1]);
    else
      return true;
  }
};

std::string bound(double value) {
  if (value == largest_integer) return std::to_string(std::numeric_limits<std::int64_t>::max());
  if (value == largest_unsigned) return std::to_string(std::numeric_limits<std::uint64_t>::max());
  return shortest_text(value);
}

}  // namespace

std::string ValueRange::text() const {
  if (!std::isfinite(low) || !std::isfinite(high)) return "";
  if (!above_low && !below_high) return " from " + bound(low) + " to " + bound(high);
  return std::string(" in ") + (above_low ? "(" : "[") + bound(low) + ", " + bound(high) +
         (below_high ? ")" : "]");
}

// A program may set a longer limit of time than a file, and none.
void check_ranges(const Config& given) {
  Config config = given;
  if (config.zero_core.time_limit_seconds > 0)
    config.zero_core.time_limit_seconds = std::min(config.zero_core.time_limit_seconds, 1.0);
  for_values(config, [](const std::string& path, const Key& key, const FieldRef& value) {
    if (!std::visit(InRange{key}, value))
      throw ConfigError(path + " is " + text_of(value, key.zero) + "; expected a number" +
                        key.range.text());
  });
}

}  // namespace detail

std::vector<std::string> keys_of_python(const Config& config) {
  std::vector<std::string> keys;
  if (config.torch_autocast.enabled) keys.push_back("torch_autocast.enabled");
  if (config.dataloader_drop_last) keys.push_back("dataloader_drop_last");
  if (!config.managed_gradient_accumulation) keys.push_back("managed_gradient_accumulation");
  return keys;
}

std::string describe(const Config& config) {
  std::map<std::string, std::string> lines;
  detail::for_values(
      config, [&](const std::string& path, const detail::Key& key, const detail::FieldRef& value) {
        if (detail::applies(key.path, key.belongs_to, config))
          lines[path] = detail::text_of(value, key.zero);
      });
  std::string text;
  for (const auto& [path, value] : lines) text += path + " = " + value + "\n";
  return text;
}

}  // namespace zero
