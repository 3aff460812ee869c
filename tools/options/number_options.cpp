#include "tools/options/number_options.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "tools/options/command_line.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"

namespace zero {
namespace {

enum class Kind : std::uint8_t { whole, real, bytes };

struct Row {
  std::string_view option;
  Kind kind;
  double least;
  std::uint64_t most;
  const char* remark = "";
};

constexpr std::uint64_t most_ranks = 1 << 20, most_threads = 1024, most_steps = 1'000'000'000'000,
                        most_samples = 1'000'000'000, most_seconds = 1'000'000'000,
                        most_minutes = 10'000'000, most_bytes = std::uint64_t{1} << 50,
                        most_tokens = 1 << 30, most_planned = 4096,
                        largest = std::numeric_limits<std::uint64_t>::max();

constexpr std::array<Row, 37> rows = {
    {{"--ranks", Kind::whole, 1, most_ranks},
     {"--min-ranks", Kind::whole, 1, most_ranks},
     {"--restarts", Kind::whole, 0, 1'000'000},
     {"--world-size", Kind::whole, 1, most_ranks},
     {"--stage", Kind::whole, 0, 3, " (zero_optimization.stage)"},
     {"--seed", Kind::whole, 0, largest},
     {"--steps", Kind::whole, 0, most_steps},
     {"--total-steps", Kind::whole, 1, most_steps},
     {"--warmup-steps", Kind::whole, 0, most_steps},
     {"--sequence-length", Kind::whole, 0, most_tokens, " (0: the model's context)"},
     {"--hidden-size", Kind::whole, 1, most_tokens},
     {"--micro-batch", Kind::whole, 1, most_samples},
     {"--accumulation", Kind::whole, 1, most_samples},
     {"--threads", Kind::whole, 0, most_threads, " (0: the node's cores, shared)"},
     {"--save-every", Kind::whole, 0, most_steps, " (0: after the last step alone)"},
     {"--save-minutes", Kind::real, 0, most_minutes, " (0: never for that)"},
     {"--keep", Kind::whole, 0, most_steps, " (0: all)"},
     {"--attention-workspace", Kind::bytes, 1 << 20, most_bytes},
     {"--start-limit", Kind::real, 0.001, most_seconds, " of seconds"},
     {"--stop-limit", Kind::real, 0.001, most_seconds, " of seconds"},
     {"--lr", Kind::real, 0, 1'000'000},
     {"--generate", Kind::whole, 0, most_tokens, " (0: train)"},
     {"--temperature", Kind::real, 0, 1'000'000, " (0: the most likely token)"},
     {"--top-k", Kind::whole, 0, most_tokens, " (0: all)"},
     {"--max-shard-size", Kind::bytes, 1, most_bytes},
     {"--per-node", Kind::whole, 1, most_planned},
     {"--layers", Kind::whole, 1, most_planned},
     {"--hidden", Kind::whole, 1, most_tokens},
     {"--vocabulary", Kind::whole, 1, most_tokens},
     {"--device-memory", Kind::bytes, 1 << 20, most_bytes},
     {"--inside-node", Kind::real, 0.001, 1'000'000, " of GiB/s"},
     {"--between-nodes", Kind::real, 0.001, 1'000'000, " of GiB/s"},
     {"--price", Kind::real, 0.000001, 1'000'000},
     {"--trials", Kind::whole, 1, 1000},
     {"--trial-steps", Kind::whole, 1, most_steps},
     {"--time-limit", Kind::real, 0.01, most_minutes, " of minutes"},
     {"--deadline", Kind::real, 0.001, most_seconds, " of hours"}}};

const Row& row_of(const std::string& names) {
  const std::string name = names.substr(names.rfind(',') + 1);
  for (const Row& row : rows)
    if (row.option == name) return row;
  throw std::logic_error("number_options.cpp has no range of " + name);
}

std::string range_of(const Row& row) {
  if (row.kind == Kind::bytes) return row.least < 1 << 20 ? "1 B to 1 PiB" : "1 MiB to 1 PiB";
  return shortest_text(row.least) + " to " + std::to_string(row.most);
}

[[noreturn]] void refuse(const Row& row, const std::string& text) {
  const std::string expected =
      row.kind == Kind::whole  ? "a whole number from " + range_of(row)
      : row.kind == Kind::real ? "a number from " + range_of(row)
                               : "a size with its unit, from " + range_of(row) + ", such as 24GiB";
  throw ConfigError(std::string(row.option) + " " + printable(text) + ": expected " + expected +
                    row.remark);
}

template <class Number>
bool parse(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

bool is_in_range(const Row& row, const std::string& text) {
  if (row.kind == Kind::real) {
    double value = 0;
    return parse(text, value) && value >= row.least && value <= static_cast<double>(row.most);
  }
  std::uint64_t value = 0;
  return parse(text, value) && value >= static_cast<std::uint64_t>(row.least) && value <= row.most;
}

// Converts "5GB" to a number of bytes; returns an empty text if `text` is no size, or has no unit:
// 24 would be 24 bytes.
std::string bytes_of(std::string text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const CLI::AsSizeValue as_size(true);
  try {
    if (text.empty() || !is_digit(text.front()) || is_digit(text.back()) || !as_size(text).empty())
      return "";
  } catch (const CLI::Error&) {  // an unknown unit, or no number
    return "";
  }
  return text;
}

}  // namespace

void check_number(CLI::Option& option, const std::string& names) {
  const Row& row = row_of(names);
  const auto read = [&row](std::string& text) {
    const std::string number = row.kind == Kind::bytes ? bytes_of(text) : text;
    if (!is_in_range(row, number)) refuse(row, text);
    text = number;
    return std::string();
  };
  option.type_name(row.kind == Kind::bytes ? "SIZE" : "N");
  option.transform(CLI::Validator(read, range_of(row), "range"));
}

void refuse_missing_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const auto read = [&app, option](std::string& text) {
      const bool single = option->get_expected_max() == 1;  // lists have words for other programs
      if (single && text.starts_with('-') && app.get_option_no_throw(text) != nullptr)
        throw ConfigError(option->get_name() + " needs a value, and is followed by the option " +
                          text + "; see " + full_name(app) + " --help");
      return std::string(text.empty() ? "is empty; expected a value" : "");
    };
    // A transformation comes before the checks of numbers.
    if (option->get_expected_max() > 0) option->transform(CLI::Validator(read, "", "not empty"));
  }
  for (CLI::App* command : app.get_subcommands({})) refuse_missing_values(*command);
}

}  // namespace zero
