#include "tools/planner/row_reasons.h"

#include <algorithm>

#include "tools/report/number.h"
#include "tools/report/stage_variants.h"
#include "zero/base/number_text.h"

namespace zero::planner {
namespace {

using report::fixed, report::time_text;

constexpr double equal = 1.01;  // larger differences count

// Returns the row that `row` varies, "3" for "3+cpu"; "" if there is none.
std::string plainer_of(const std::string& row) {
  if (const std::size_t stages = row.find(report::stages_mark); stages != std::string::npos) {
    const std::string plainer = plainer_of(row.substr(0, stages));
    return plainer.empty() ? "" : plainer + row.substr(stages);
  }
  if (row.starts_with("hybrid") || row.starts_with("hfsdp")) return "3";
  if (row == "3") return "grad_op";
  if (row == "grad_op") return "2";
  if (row == "2") return "1";
  if (row == "1") return "0";
  const std::size_t plus = row.find('+');
  return plus == std::string::npos ? "" : row.substr(0, plus);
}

std::string listed(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

// Describes in words how a row differs from another.
struct Differences {
  std::vector<std::string> more, less;
  bool saves_time = false, saves_memory = false;
};

Differences differences(const Estimate& row, const Estimate& plainer) {
  Differences found;
  const auto compare = [&](const char* what, double own, double other) {
    const std::string figures =
        std::string(what) + " (" + byte_text(own) + " instead of " + byte_text(other) + ")";
    if (own > equal * other) found.more.push_back(figures);
    if (equal * own < other) found.less.push_back("less " + figures);
  };
  compare("inside a node", row.step.inside_bytes, plainer.step.inside_bytes);
  compare("between nodes", row.step.between_bytes, plainer.step.between_bytes);
  const auto memory = [](const Estimate& each) { return static_cast<double>(each.bytes_per_rank); };
  found.saves_memory = equal * memory(row) < memory(plainer);
  found.saves_time = equal * row.step.seconds < plainer.step.seconds;
  if (found.saves_memory)
    found.less.push_back("less memory (" + byte_text(memory(row)) + " instead of " +
                         byte_text(memory(plainer)) + ")");
  if (found.saves_time)
    found.less.push_back("less time (" + time_text(row.step.seconds) + " instead of " +
                         time_text(plainer.step.seconds) + ")");
  return found;
}

}  // namespace

std::vector<std::string> explain_rows(std::vector<Estimate>& estimates,
                                      const std::vector<PlanRow>& rows) {
  std::vector<std::string> sentences, left_out;
  std::vector<Estimate> kept;
  for (const Estimate& row : estimates) {
    const auto plainer = std::ranges::find(estimates, plainer_of(row.row), &Estimate::row);
    const bool comparable =
        plainer != estimates.end() && row.refusal.empty() && plainer->refusal.empty();
    const Differences found = comparable ? differences(row, *plainer) : Differences{};
    const bool optional = std::ranges::any_of(
        rows, [&](const PlanRow& each) { return each.name == row.row && each.optional; });
    if (!found.more.empty() && optional && !found.saves_time && !found.saves_memory) {
      left_out.push_back(row.row + ": " + listed(found.more));
      continue;
    }
    kept.push_back(row);
    if (!found.more.empty())
      sentences.push_back(row.row + " sends more than " + plainer->row + " " + listed(found.more) +
                          (found.less.empty() ? ", and gains nothing by it."
                                              : ", for " + listed(found.less) + "."));
  }
  if (!left_out.empty())
    sentences.push_back(
        "Left out, because they send more than 3 and save neither time nor memory: " +
        listed(left_out) + ".");
  estimates = std::move(kept);
  return sentences;
}

}  // namespace zero::planner
