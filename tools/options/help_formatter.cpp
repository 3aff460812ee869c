#include "tools/options/help_formatter.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "zero/base/text.h"

namespace zero {

namespace {

constexpr int name_columns = 30;

// The names of texts that several commands take.
constexpr std::array<std::pair<std::string_view, const char*>, 15> names_of_values = {
    {{"set", "PATH=VALUE"},
     {"hostfile", "FILE"},
     {"launcher", "PROGRAM"},
     {"launcher-arg", "WORD"},
     {"x", "NAME"},
     {"elastic", "MIN:MAX"},
     {"model", "NAME|PATH"},
     {"params", "COUNT"},
     {"total-tokens", "COUNT"},
     {"device", "NAME|FILE"},
     {"rows", "LIST"},
     {"dir", "DIR"},
     {"tag", "TAG"},
     {"dtype", "fp32|bf16|fp16"},
     {"kernels", "fused|compiled|eager"}}};

struct Value {
  std::string name, range;
};

// CLI11 has "N:1 to 4096", "TEXT:{cpu,cuda}" and "TEXT".
Value value_of(const CLI::Option& option) {
  const std::string all = option.get_type_name();
  const std::size_t colon = all.find(':');
  std::string range = colon == std::string::npos ? "" : all.substr(colon + 1);
  if (range.starts_with('{')) {
    range = range.substr(1, range.find('}') - 1);
    std::ranges::replace(range, ',', '|');
    return {range, ""};
  }
  const std::string name = all.substr(0, colon);
  if (name != "TEXT") return {name, range};
  const std::string own = option.get_single_name();
  const auto found =
      std::ranges::find(names_of_values, own, [](const auto& row) { return row.first; });
  return {found != names_of_values.end() ? found->second : name, range};
}

// A range whose end is only what fits is of no use to a reader.
bool is_worth_saying(const std::string& range) {
  constexpr std::size_t longest = 9;  // "1 to 4096"
  return !range.empty() && range.size() <= longest;
}

}  // namespace

std::string value_name(const CLI::Option& option) {
  return value_of(option).name;
}

namespace {

std::string left_side(const CLI::Option& option, bool is_positional) {
  std::string text = option.get_name(is_positional, !is_positional);
  if (!is_positional && option.get_type_size() != 0) text += " " + value_of(option).name;
  if (option.get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
  return text;
}

std::string right_side(const CLI::Option& option) {
  std::string text = option.get_description();
  std::ranges::replace(text, '\n', ' ');
  if (is_worth_saying(value_of(option).range)) text += " (" + value_of(option).range + ")";
  if (!option.get_default_str().empty()) text += "; default: " + option.get_default_str();
  if (option.get_required()) text += "; required";
  return text;
}

int help_width() {
  int columns = 0;
  winsize size{};
  if (const char* text = std::getenv("COLUMNS"); text != nullptr)
    columns = std::atoi(text);
  else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
    columns = size.ws_col;
  return columns == 0 ? 100 : std::clamp(columns, 60, 120);
}

// Fills lines with the text's words, so that none is wider, unless a word is. Those after the first
// begin with `indent` spaces.
std::string wrapped(const std::string& text, int width, int indent) {
  std::string result;
  int column = indent;
  for (const std::string& word : words_of(text)) {
    const int length = static_cast<int>(word.size());
    if (!result.empty() && column + 1 + length > width) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!result.empty()) {
      result += " ";
      ++column;
    }
    result += word;
    column += length;
  }
  return result;
}

std::string row(const std::string& left, const std::string& right) {
  std::string line = "  " + left;
  if (right.empty()) return line + "\n";
  const auto used = static_cast<int>(line.size());
  line += used + 2 <= name_columns ? std::string(name_columns - used, ' ')
                                   : "\n" + std::string(name_columns, ' ');
  return line + wrapped(right, help_width(), name_columns) + "\n";
}

// Fills lines anew, except for those that are indented.
std::string text_of(const std::string& given) {
  std::string result, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) result += wrapped(paragraph, help_width(), 0) + "\n";
    paragraph.clear();
  };
  std::istringstream lines(given);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with(' ')) {
      end_paragraph();
      result += line + "\n";
    } else {
      paragraph += (paragraph.empty() ? "" : " ") + line;
    }
  }
  end_paragraph();
  return result;
}

}  // namespace

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return text_of(app->get_description());
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  return usage_.empty() ? Formatter::make_usage(app, std::move(name)) + "\n"
                        : "Usage: " + usage_ + "\n\n";
}

std::string HelpFormatter::make_group(std::string group, bool is_positional,
                                      std::vector<const CLI::Option*> options) const {
  std::string text = std::move(group) + ":\n";
  for (const CLI::Option* option : options) text += make_option(option, is_positional);
  return text + (is_positional ? "\n" : "");
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return row(left_side(*option, is_positional), right_side(*option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return row(command->get_name(), command->get_description());
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  const std::string text = text_of(app->get_footer());
  return text.empty() ? "" : "\n" + text;
}

}  // namespace zero
