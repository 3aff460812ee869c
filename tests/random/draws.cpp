#include "tests/random/draws.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "tests/random/runs.h"

namespace random_draws {

namespace {

// Returns whether a setting without sense may end like this: when the engine starts, or because the
// numbers diverge.
bool is_refusal(int exit_code) {
  return exit_code == zero::ConfigError::code || exit_code == zero::TopologyError::code ||
         exit_code == zero::MemoryError::code || exit_code == zero::NumericError::code;
}

// Runs jobs, and collects their problems.
class Checker {
 public:
  // Compares with the first of the others that has encoded the same sums.
  Outcome run(const std::string& name, const Job& job, const std::vector<Outcome>& others) {
    Outcome outcome = random_draws::run(job);
    ++verdict.runs;
    std::string problem = outcome.problem;
    const auto expected = std::ranges::find(others, outcome.encodings, &Outcome::encodings);
    verdict.alone += !others.empty() && expected == others.end();
    if (problem.empty() && expected != others.end())
      problem =
          difference(expected->before, outcome.before) + difference(expected->rest, outcome.rest);
    if (!problem.empty()) add(name + ": " + problem, outcome);
    return outcome;
  }
  void add(const std::string& problem, const Outcome& outcome) {
    if (verdict.problem.empty()) verdict.exit_code = outcome.exit_code;
    verdict.problem += problem + "\n";
    if (outcome.exit_code != 0) verdict.problem += outcome.printed;
  }

  Verdict verdict;
};

void check_any(const Draw& draw, Verdict& verdict) {
  const Outcome outcome = run({draw.terms, draw.settings.front()});
  verdict.runs = 1;
  verdict.refused = is_refusal(outcome.exit_code);
  if (outcome.problem.empty() || verdict.refused) return;
  verdict.problem =
      "code " + std::to_string(outcome.exit_code) + ": " + outcome.problem + "\n" + outcome.printed;
  verdict.exit_code = outcome.exit_code;
}

void check_equal(const Draw& draw, const std::string& saved, Checker& checker) {
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < draw.settings.size(); ++i)
    outcomes.push_back(checker.run(
        "setting " + std::to_string(i),
        {draw.terms, draw.settings[i], {}, i == 0 && !draw.resuming.empty() ? saved : ""},
        outcomes));
  if (!checker.verdict.problem.empty()) return;
  const std::uint64_t digest = outcomes.front().before.digest;
  // A run resumed on the same ranks continues like the first; runs on other ranks are compared with
  // one of themselves.
  outcomes.resize(draw.other_ranks ? 0 : 1);
  for (Outcome& outcome : outcomes) outcome.before = {};
  const Terms& terms = draw.other_ranks.value_or(draw.terms);
  for (std::size_t i = 0; i < draw.resuming.size(); ++i) {
    const std::string name = "resuming setting " + std::to_string(i);
    const Outcome outcome = checker.run(name, {terms, draw.resuming[i], saved}, outcomes);
    if (outcome.exit_code == 0 && outcome.loaded != digest)
      checker.add(name + ": what it has loaded is not what was saved", outcome);
    outcomes.push_back(outcome);
  }
}

// Keys that determine the row's bits are not left out on their own.
bool can_go(const std::string& key) {
  for (const char* kept : {"zero_optimization.stage", "zero_optimization.mics_shard_size",
                           "zero_core.shard_group_size", "zero_core.reduce_group_size",
                           "zero_core.gradient_sync", "gradient_accumulation_steps",
                           "train_micro_batch_size_per_gpu", "zero_core.time_limit_seconds"})
    if (key == kept) return false;
  return true;
}

using Change = std::function<void(Draw&)>;

// Adds changes of settings; another change may have removed the setting.
void add_changes(const Draw& draw, std::vector<Setting> Draw::*settings, std::vector<Change>& all) {
  for (std::size_t i = 0; i < (draw.*settings).size(); ++i) {
    const auto add = [&](std::function<void(Setting&)> change) {
      all.push_back([=](Draw& d) {
        if (i < (d.*settings).size()) change((d.*settings)[i]);
      });
    };
    for (const auto& [key, value] : (draw.*settings)[i].keys)
      if (draw.any || can_go(key)) add([key = key](Setting& s) { s.keys.erase(key); });
    add([](Setting& s) { s.executor = "inline"; });
    add([](Setting& s) { s.strict = false; });
    add([](Setting& s) { s.delays = false; });
    add([](Setting& s) { s.looks = false; });
  }
}

std::vector<Change> changes(const Draw& draw) {
  std::vector<Change> all = {
      [](Draw& d) { d.resuming.clear(); },
      [](Draw& d) { d.terms.dims.blocks = 1; },
      [](Draw& d) { d.terms.dims.channels = 8; },
      [](Draw& d) { d.terms.dims.vocabulary = 8; },
  };
  for (auto settings : {&Draw::resuming, &Draw::settings})
    for (std::size_t i = (draw.*settings).size(); i-- > 0;)
      all.push_back([=](Draw& d) {
        if (i < (d.*settings).size()) (d.*settings).erase((d.*settings).begin() + long(i));
      });
  for (const auto& [key, value] : draw.terms.keys)
    if (can_go(key))
      all.push_back([key = key](Draw& d) {
        d.terms.keys.erase(key);
        if (d.other_ranks) d.other_ranks->keys.erase(key);
      });
  add_changes(draw, &Draw::settings, all);
  add_changes(draw, &Draw::resuming, all);
  return all;
}

}  // namespace

Draw make_draw(std::uint64_t seed, std::uint64_t number, const std::string& directory) {
  Dice dice(seed, number);
  Draw draw;
  draw.any = dice.one_in(4);
  if (draw.any) {
    draw.settings.push_back(draw_any(dice, draw.terms, directory));
    return draw;
  }
  draw.terms = draw_terms(dice);
  for (int more = dice.between(2, 4); more > 0; --more)
    draw.settings.push_back(draw_setting(dice, draw.terms, directory));
  if (!dice.one_in(2)) return draw;
  if (dice.one_in(2)) draw.other_ranks = on_other_ranks(dice, draw.terms);
  for (int more = 2; more > 0; --more)
    draw.resuming.push_back(draw_setting(dice, draw.other_ranks.value_or(draw.terms), directory));
  return draw;
}

Verdict check(const Draw& draw, const std::string& directory) {
  Checker checker;
  const std::filesystem::path saved = std::filesystem::path(directory) / "saved";
  if (draw.any)
    check_any(draw, checker.verdict);
  else
    check_equal(draw, saved.string(), checker);
  std::filesystem::remove_all(saved);
  return checker.verdict;
}

Draw shrink(Draw draw, const std::string& directory) {
  const Verdict whole = check(draw, directory);
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Change& change : changes(draw)) {
      Draw other = draw;
      change(other);
      if (text_of(other) == text_of(draw) || other.settings.empty()) continue;
      const Verdict verdict = check(other, directory);
      if (verdict.problem.empty() || verdict.exit_code != whole.exit_code) continue;
      // A refusal must be for the same reason.
      if (verdict.exit_code != 0 && verdict.problem != whole.problem) continue;
      draw = other;
      smaller = true;
    }
  }
  return draw;
}

std::string text_of(const Draw& draw) {
  std::string text = text_of(draw.terms) + "\n";
  for (const Setting& setting : draw.settings) text += "  runs " + text_of(setting) + "\n";
  if (draw.other_ranks) text += "  later " + text_of(*draw.other_ranks) + "\n";
  for (const Setting& setting : draw.resuming) text += "  resumes " + text_of(setting) + "\n";
  return text;
}

}  // namespace random_draws
