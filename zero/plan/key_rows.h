// Short forms that let the files with rows of the key table read as a table. The rows of a section
// are grouped and omit its path.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "zero/plan/config_key.h"

namespace zero::config_keys {

using namespace detail;

// Every number has a lower and an upper limit: beyond the needs of any training run, and small
// enough that sums and products of a few do not overflow.
constexpr double many = 1e15;
constexpr ValueRange counts{.low = 0, .high = many};
constexpr ValueRange positive_counts{.low = 1, .high = many};
constexpr ValueRange any_count{.low = -many, .high = many};
constexpr ValueRange limits{.low = 0, .high = largest_integer};  // the largest value means no limit
constexpr ValueRange samples{.low = 1, .high = 1e9};
constexpr ValueRange seconds{.low = 0, .high = 1e9};
constexpr ValueRange positive_seconds{.low = 0, .high = 1e9, .above_low = true};
constexpr ValueRange ranks{.low = 1, .high = most_ranks};
constexpr ValueRange one_or_none{.low = 0, .high = 1};
constexpr ValueRange small_counts{.low = 0, .high = 1000};
constexpr ValueRange rates{.low = 0, .high = 1e6};
constexpr ValueRange positive_rates{.low = 0, .high = 1e6, .above_low = true};
constexpr ValueRange bytes_per_second{.low = 1e6, .high = many};
constexpr ValueRange signed_rates{.low = -1e6, .high = 1e6};
constexpr ValueRange unit_interval{.low = 0, .high = 1};
constexpr ValueRange below_one{.low = 0, .high = 1, .below_high = true};

using Names = std::vector<std::string_view>;

// PyTorch's and DeepSpeed's names of the floating-point types.
inline const Names dtype_names{"fp16",          "float16",        "half",         "bf16",
                               "bfloat16",      "fp32",           "float",        "float32",
                               "torch.float16", "torch.bfloat16", "torch.float32"};

inline constexpr std::string_view python_compiler =
    "DeepSpeed's compiler passes over Python models";

// A row of the table under construction. Each function returns a copy with one more property.
struct Row : Key {
  template <class T>
  Row with(T Key::*member, std::type_identity_t<T> value) const {
    Row row = *this;
    row.*member = std::move(value);
    return row;
  }
  Row also(std::string_view name) const { return with(&Key::alias, name); }
  Row because(std::string_view why) const { return with(&Key::reason, why); }
  Row of(std::span<const std::string_view> types) const { return with(&Key::belongs_to, types); }
  Row zero_as(std::string_view text) const { return with(&Key::zero, text); }
  Row harmless(Names values) const { return with(&Key::harmless, std::move(values)); }
  Row under(std::string_view key) const { return with(&Key::switched_by, key); }
  Row in_any_case() const { return with(&Key::any_case, true); }
  Row or_null() const { return with(&Key::nullable, true); }
  Row or_list_of_one() const { return with(&Key::list_of_one, true); }
  Row or_integers() const { return with(&Key::type, Type::text_or_integers); }
  Row or_auto() const { return with(&Key::auto_is_absent, true); }
  Row strictly() const { return with(&Key::strict, true); }
  Row needed() const { return with(&Key::required, true); }
};

// An object with its own rows. Without a name: the section that contains the other rows.
inline Row section(std::string_view meaning) {
  return {{.type = Type::section, .meaning = meaning}};
}

using Member = FieldRef (*)(Config& config, const std::string& group);

// A key that sets a member of Config.
inline Row acts(std::string name, Member of, ValueRange range, std::string_view meaning) {
  return {{.path = std::move(name), .range = range, .of = of, .meaning = meaning}};
}
inline Row acts(std::string name, Member of, std::string_view meaning) {
  return acts(std::move(name), of, ValueRange{}, meaning);
}
inline Row acts(std::string name, Member of, Names choices, std::string_view meaning) {
  return {{.path = std::move(name), .choices = std::move(choices), .of = of, .meaning = meaning}};
}

// Keys that set no member: name, default, meaning in DeepSpeed, and the reason for no effect or
// refusal, unless shared by the rows of a list.
inline Row plain(Type type, std::string name, std::string_view initial, std::string_view meaning,
                 std::string_view reason = "") {
  return {{.path = std::move(name),
           .type = type,
           .reason = reason,
           .initial = initial,
           .meaning = meaning}};
}
inline Row boolean(std::string name, std::string_view initial, std::string_view meaning,
                   std::string_view reason = "") {
  return plain(Type::boolean, std::move(name), initial, meaning, reason);
}
inline Row integer(std::string name, ValueRange range, std::string_view initial,
                   std::string_view meaning, std::string_view reason = "") {
  return plain(Type::integer, std::move(name), initial, meaning, reason).with(&Key::range, range);
}
inline Row choice(std::string name, Names choices, std::string_view initial,
                  std::string_view meaning, std::string_view reason = "") {
  return plain(Type::choice, std::move(name), initial, meaning, reason)
      .with(&Key::choices, std::move(choices));
}
inline Row any(std::string name, std::string_view meaning, std::string_view reason = "") {
  return plain(Type::any, std::move(name), "", meaning, reason);
}
inline Row block(std::string name, std::string_view meaning, std::string_view reason = "") {
  return plain(Type::block, std::move(name), "", meaning, reason);
}

// Collects rows of one status.
class RowList {
 public:
  explicit RowList(Status status) : status_(status) {}

  // Adds rows of a section ("" at top level), each with `reason` if it has none.
  void in(std::string_view section, std::string_view reason, std::initializer_list<Row> rows) {
    for (Key row : rows) {
      if (row.path.empty() || !section.empty())
        row.path = std::string(section) + (row.path.empty() ? "" : "." + row.path);
      row.status = status_;
      if (row.reason.empty()) row.reason = reason;
      keys_.push_back(std::move(row));
    }
  }
  void in(std::string_view section, std::initializer_list<Row> rows) { in(section, "", rows); }

  std::vector<Key> take() { return std::move(keys_); }

 private:
  Status status_;
  std::vector<Key> keys_;
};

}  // namespace zero::config_keys
