// Config files of other projects, if ZERO_DS_CONFIGS names a directory of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "tests/config/config_support.h"

using namespace zero;
using zero::tests::has;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);) lines.push_back(line);
  return lines;
}

// Reduces "ds.json:3:4: fp16.enabled: true is refused: ..." to the reason, without position, value
// and advice.
std::string reason_of(std::string line) {
  line = std::regex_replace(line, std::regex("^[^:]*:[0-9]+:[0-9]+: "), "");
  line = std::regex_replace(
      line, std::regex("^([^: ]+)( \\(written as [^)]*\\))?: .* is refused: "), "$1: ");
  line = std::regex_replace(line, std::regex("; (allowed|nearest|use|set|remove).*"), "");
  return line.substr(0, 110);
}

// Returns the smallest number of ranks that the batch triple admits.
int admitted_ranks(const BatchOptions& batch) {
  for (int ranks = 1; ranks <= 4096; ++ranks) {
    try {
      resolve_batch(batch, ranks);
      return ranks;
    } catch (const ConfigError&) {
    }
  }
  return 0;
}

// Returns whether DeepSpeed 0.19 refuses the file too.
bool says_removed(const std::string& line) {
  return has(line, "DeepSpeed removed") || has(line, "DeepSpeed refuses it too");
}

struct Summary {
  int as_is = 0, with_notices = 0, removed = 0, refused = 0;
  std::map<int, int> ranks;
  std::map<std::string, int> reasons, notices;

  void load(const std::string& file, const TrainerValues& values) {
    try {
      const Config config = load_config(file, {}, values);
      CHECK_FALSE(describe(config).empty());
      const int needed = admitted_ranks(config.batch);
      CHECK(needed > 0);
      ++ranks[needed];
      ++(config.notices.empty() ? as_is : with_notices);
      for (const std::string& notice : config.notices)
        ++notices[notice.substr(notice.rfind(": ") + 2)];
    } catch (const ConfigError& error) {
      CHECK(std::string(error.what()).starts_with(file + ":"));
      count(lines_of(error.what()));
    }
  }

  void count(const std::vector<std::string>& problems) {
    std::set<std::string> own;
    for (const std::string& line : problems) own.insert(reason_of(line));
    ++(std::ranges::any_of(problems, says_removed) ? removed : refused);
    for (const std::string& reason : own) ++reasons[reason];
  }

  std::string table() const {
    std::ostringstream out;
    out << as_is << " load as they are, " << with_notices << " with notices, " << removed
        << " are refused for what DeepSpeed removed, " << refused << " for other reasons\n";
    const auto list = [&](const char* title, const std::map<std::string, int>& counts) {
      std::vector<std::pair<int, std::string>> sorted;
      for (const auto& [text, files] : counts) sorted.emplace_back(-files, text);
      std::ranges::sort(sorted);
      out << title << '\n';
      for (const auto& [files, text] : sorted) out << "  " << -files << "  " << text << '\n';
    };
    list("refused, files by reason (a file may have several):", reasons);
    list("notices, files by reason:", notices);
    out << "number of ranks needed: files";
    for (const auto& [needed, files] : ranks) out << ", " << needed << ": " << files;
    return out.str();
  }
};

}  // namespace

TEST_CASE("every real config loads, or is refused for a stated reason") {
  const char* directory = std::getenv("ZERO_DS_CONFIGS");
  if (directory == nullptr) {
    MESSAGE("skipped: ZERO_DS_CONFIGS names no directory of config files");
    return;
  }
  TrainerValues values;
  values.hidden_size = 768;
  values.micro_batch_size = 1;
  values.total_steps = 1000;
  Summary summary;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".json") continue;
    CAPTURE(entry.path().string());
    summary.load(entry.path().string(), values);
    ++files;
  }
  MESSAGE(files << " files: " << summary.table());
  CHECK(files > 0);
  CHECK(summary.refused * 20 <= files);
}
