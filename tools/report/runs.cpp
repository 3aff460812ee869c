#include "tools/report/runs.h"

#include "tools/report/number.h"

namespace zero::report {

void begin(Comparison& comparison, const CommonSettings& settings,
           const std::vector<std::string>& names) {
  comparison.title = settings.model + " with " +
                     fixed(static_cast<double>(settings.parameters), 0) + " parameters, " +
                     std::to_string(settings.ranks) + " ranks, " + std::to_string(settings.steps) +
                     " steps";
  comparison.ranks = settings.ranks;
  comparison.parameters = settings.parameters;
  for (const std::string& name : names)
    comparison.absent.push_back({name, "it has not run to its end"});
}

std::vector<std::pair<std::string, std::string>> facts_of(const CommonSettings& settings) {
  return {{"sync", std::string("gradients are reduced after ") +
                       (settings.sync_each ? "every micro step" : "the last micro step") +
                       " at all stages"},
          {"steps", std::to_string(settings.steps) +
                        " from the same start at each stage; times leave out the first " +
                        std::to_string(settings.warm_up)}};
}

void add(Comparison& comparison, const MeasuredRun& run) {
  comparison.variants.push_back(figures_of(run));
  std::erase_if(comparison.absent, [&](const Absent& absent) { return absent.name == run.name; });
}

void note_failure(Comparison& comparison, const std::string& name, const std::string& reason) {
  for (Absent& absent : comparison.absent)
    if (absent.name == name) absent.reason = reason.substr(0, reason.find('\n'));
}

}  // namespace zero::report
