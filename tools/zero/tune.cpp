// zero tune: times the most promising plans of a training run on the ranks of this machine, and
// writes the config of the fastest.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/options/command_line.h"
#include "tools/options/help_formatter.h"
#include "tools/options/number_options.h"
#include "tools/options/result_file.h"
#include "tools/planner/candidates.h"
#include "tools/report/number.h"
#include "tools/zero/commands.h"
#include "tools/zero/launcher_lookup.h"
#include "tools/zero/machine.h"
#include "tools/zero/program_config.h"
#include "tools/zero/trial.h"
#include "tools/zero/tuning_options.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

using Clock = std::chrono::steady_clock;
using planner::Candidate;
using zero::report::fixed, zero::report::time_text;

struct Tried {
  Candidate candidate;
  std::vector<double> step_seconds = {};  // of each trial
  std::string problem = {};

  bool good() const { return !step_seconds.empty(); }
  double best() const { return *std::ranges::min_element(step_seconds); }
};

void announce(const std::string& text) {
  write_line("zero tune: " + text);
}

// A directory for the configs of the trials.
class TrialDirectory {
 public:
  TrialDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "zero-tune-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw ConfigError("no directory can be made in " +
                        std::filesystem::temp_directory_path().string() +
                        " for the configs of the trials: set TMPDIR");
    path_ = pattern;
  }
  ~TrialDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TrialDirectory(const TrialDirectory&) = delete;

  std::string write(const std::string& config) const {
    const std::string file = (path_ / "ds_config.json").string();
    write_result(file, file, config);
    return file;
  }

 private:
  std::filesystem::path path_;
};

// Searches along rows and micro-batches: the config itself, each row with the best prediction, then
// the neighbors of the fastest, and the fastest again.
class Tuner {
 public:
  Tuner(const TuneOptions& options, std::vector<Candidate> candidates)
      : options_(options),
        candidates_(std::move(candidates)),
        launcher_(find_launcher(options.launcher)),
        machine_(read_machine()),
        deadline_(Clock::now() +
                  std::chrono::duration_cast<Clock::duration>(
                      std::chrono::duration<double, std::ratio<60>>(options.minutes))) {}

  // Returns all tried plans, the fastest first. After a signal to this process, stopped() is true.
  std::vector<Tried> run();
  JobSignals& signals() { return signals_; }
  bool stopped() const { return stopped_; }

 private:
  const Candidate* next() const;
  bool is_tried(const Candidate& candidate) const;
  const Tried* fastest() const;
  bool fails_alike() const;
  void repeat_fastest();
  bool try_once(Tried& tried);
  bool fails_alike(const Tried& tried, const TrialResult& result) const;
  Clock::duration limit() const;

  const TuneOptions& options_;
  const std::vector<Candidate> candidates_;  // the fastest prediction first
  const Launcher launcher_;
  const MachineFacts machine_;
  const Clock::time_point deadline_;
  const TrialDirectory directory_;
  JobSignals signals_;
  std::vector<Tried> tried_;
  Clock::duration longest_{};  // of the trials that succeeded
  bool stopped_ = false;
};

bool Tuner::is_tried(const Candidate& candidate) const {
  return std::ranges::any_of(
      tried_, [&](const Tried& tried) { return tried.candidate.name() == candidate.name(); });
}

const Tried* Tuner::fastest() const {
  const Tried* best = nullptr;
  for (const Tried& tried : tried_)
    if (tried.good() && (best == nullptr || tried.best() < best->best())) best = &tried;
  return best;
}

const Candidate* Tuner::next() const {
  const auto first = [&](const auto& fits) -> const Candidate* {
    const auto found = std::ranges::find_if(candidates_, [&](const Candidate& candidate) {
      return !is_tried(candidate) && fits(candidate);
    });
    return found == candidates_.end() ? nullptr : &*found;
  };
  const auto row_is_new = [&](const Candidate& candidate) {
    return std::ranges::none_of(
        tried_, [&](const Tried& tried) { return tried.candidate.row == candidate.row; });
  };
  if (const Candidate* found = first([](const Candidate& c) { return c.row == "config"; }))
    return found;
  if (const Candidate* found = first(row_is_new)) return found;
  if (const Tried* best = fastest())
    if (const Candidate* found = first([&](const Candidate& candidate) {
          return candidate.row == best->candidate.row ||
                 candidate.micro_batch == best->candidate.micro_batch;
        }))
      return found;
  return first([](const Candidate&) { return true; });
}

// A trial much slower than all before has no chance.
Clock::duration Tuner::limit() const {
  const auto left = deadline_ - Clock::now();
  return longest_ == Clock::duration{} ? left
                                       : std::min(left, 3 * longest_ + std::chrono::seconds(10));
}

// Returns false if no further trial is possible.
bool Tuner::try_once(Tried& tried) {
  LaunchRequest launch;
  launch.ranks = options_.ranks;
  launch.program = options_.program;
  launch.arguments = with_config_file(options_.arguments, directory_.write(tried.candidate.config));
  if (!options_.micro_option.empty())
    launch.arguments = with_argument(launch.arguments, options_.micro_option,
                                     std::to_string(tried.candidate.micro_batch));
  if (!options_.accumulation_option.empty())
    launch.arguments = with_argument(launch.arguments, options_.accumulation_option,
                                     std::to_string(tried.candidate.accumulation));
  const auto begin = Clock::now();
  const TrialResult result =
      run_trial({launch, machine_, launcher_, options_.warm_up, options_.steps, limit()}, signals_);
  stopped_ = result.stopped;
  if (stopped_) return false;
  const bool alike = fails_alike(tried, result);
  tried.problem = result.problem;
  if (result.step_seconds) {
    tried.step_seconds.push_back(*result.step_seconds);
    longest_ = std::max(longest_, Clock::now() - begin);
  }
  announce(tried.candidate.name() + ": " +
           (result.step_seconds ? time_text(*result.step_seconds) + " per step, predicted " +
                                      time_text(tried.candidate.predicted_seconds)
                                : result.problem));
  if (alike) announce("the other plans would fail in the same way: no further trials");
  return !alike && Clock::now() < deadline_;
}

// Returns whether the failure is the program's own, which no plan can avoid: of the options, with
// the program's config, or as with an earlier plan. Memory and time depend on the plan.
bool Tuner::fails_alike(const Tried& tried, const TrialResult& result) const {
  if (result.step_seconds || result.by_plan || fastest() != nullptr) return false;
  const bool before = std::ranges::any_of(tried_, [&](const Tried& other) {
    return &other != &tried && other.problem == result.problem;
  });
  return before || result.wrong_options || tried.candidate.row == "config";
}

// Whether no trial has succeeded, and the last two have failed for the same reason.
bool Tuner::fails_alike() const {
  return std::ranges::none_of(tried_, &Tried::good) && tried_.size() >= 2 &&
         tried_.back().problem == tried_[tried_.size() - 2].problem;
}

// The noise of a single trial may exceed the distance between the fastest plans.
void Tuner::repeat_fastest() {
  std::ranges::sort(tried_, {}, [](const Tried& tried) {
    return tried.good() ? tried.best() : std::numeric_limits<double>::infinity();
  });
  for (int turn = 0; turn < options_.repeats; ++turn)
    for (std::size_t i = 0; i < std::min<std::size_t>(3, tried_.size()); ++i)
      if (!tried_[i].good() || !try_once(tried_[i])) return;
}

std::vector<Tried> Tuner::run() {
  announce(count_of(std::ssize(candidates_), "plan") + " fit; at most " +
           count_of(options_.trials, "trial") + " of " + count_of(options_.steps, "step") +
           ", in at most " + fixed(options_.minutes, options_.minutes < 1 ? 2 : 0) + " minutes");
  bool more = true;
  while (more && std::ssize(tried_) < options_.trials) {
    const Candidate* candidate = next();
    if (candidate == nullptr) break;
    tried_.push_back({*candidate});
    more = try_once(tried_.back());
    if (!fails_alike()) continue;
    announce("the same failure twice, whatever the plan is: no further trial");
    more = false;
  }
  if (more) repeat_fastest();
  std::ranges::stable_sort(tried_, {}, [](const Tried& tried) {
    return tried.good() ? tried.best() : std::numeric_limits<double>::infinity();
  });
  return tried_;
}

std::string text_of(const std::vector<Tried>& tried) {
  char line[160];
  std::snprintf(line, sizeof line, "  %-34s %12s %12s %8s\n", "plan", "predicted", "measured",
                "trials");
  std::string text = line;
  for (const Tried& each : tried) {
    std::snprintf(line, sizeof line, "%s %-34s %12s %12s %8zu\n",
                  &each == &tried.front() && each.good() ? "*" : " ", each.candidate.name().c_str(),
                  time_text(each.candidate.predicted_seconds).c_str(),
                  each.good() ? time_text(each.best()).c_str() : "-", each.step_seconds.size());
    text += line;
  }
  return text;
}

std::string json_of(const std::vector<Tried>& tried) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Tried& each : tried) {
    const Candidate& candidate = each.candidate;
    list.push_back({{"row", candidate.row},
                    {"micro_batch", candidate.micro_batch},
                    {"accumulation", candidate.accumulation},
                    {"bytes_per_rank", candidate.bytes_per_rank},
                    {"predicted_step_seconds", candidate.predicted_seconds},
                    {"step_seconds", each.good() ? Json(each.best()) : Json(nullptr)},
                    {"trials", each.step_seconds.size()},
                    {"problem", each.problem.empty() ? Json(nullptr) : Json(each.problem)}});
  }
  return list.dump(2) + "\n";
}

void tune(const TuneOptions& options) {
  refuse_nesting();
  check_program(options.program);
  if (!options.json.empty()) check_result_file(options.json, "--json " + options.json);
  if (!options.write.empty()) check_result_file(options.write, "--write " + options.write);
  planner::Candidates found =
      planner::candidates(options.request, options.rows, options.micro_batches);
  for (const std::string& sentence : found.left_out) announce(sentence);
  if (found.fit.empty())
    throw ConfigError("no plan fits; see `zero plan` for changes that would fit");
  Tuner tuner(options, std::move(found.fit));
  const std::vector<Tried> tried = tuner.run();
  if (tuner.stopped()) end_like({.code = stopped_unsaved}, tuner.signals());
  std::fputs(text_of(tried).c_str(), stdout);
  if (!options.json.empty()) write_result(options.json, "--json " + options.json, json_of(tried));
  if (!tried.front().good()) throw ConfigError("no trial succeeded: " + tried.front().problem);
  if (options.write.empty()) return;
  write_result(options.write, "--write " + options.write, tried.front().candidate.config);
  std::printf("\n%s: %s\n", options.write.c_str(), tried.front().candidate.name().c_str());
}

}  // namespace

void add_tune(CLI::App& app) {
  auto given = std::make_shared<TuneArguments>();
  CLI::App* command = app.add_subcommand(
      "tune", "Time the most promising plans of a program on this machine, and write the fastest");
  command->formatter(std::make_shared<HelpFormatter>("zero tune -n N [OPTIONS] PROGRAM [ARGS...]"));
  command->footer(
      "PROGRAM reads the config from --deepspeed_config or --deepspeed among its arguments, and "
      "is\n"
      "killed after each trial. docs/sizing.md has an example.");
  const auto in_group = [command](const char* name) { command->option_defaults()->group(name); };
  in_group("Machine");
  add_number(*command, "-n,--ranks", given->ranks, "Number of ranks");
  command->add_option("--launcher", given->launcher,
                      "Launcher to use (default: mpirun, else mpiexec)");
  command->add_option("--device", given->device,
                      "As for zero plan: a name or a file; default: cpu");
  in_group("Model");
  command->add_option("--model", given->model,
                      "The program's model, as for zero plan; default: the program's --model");
  add_number(*command, "--sequence-length", given->sequence,
             "Tokens per sample; default: the program's --sequence-length, or the model's");
  in_group("Trials");
  command->add_option("--rows", given->rows,
                      "Rows as for zero plan; default: config, 0, 1, 2, 3, grad_op, on several\n"
                      "nodes groups, and offload if the config has it");
  add_number(*command, "--trials", given->trials, "Plans to time; default: 12");
  add_number(*command, "--trial-steps", given->steps, "Steps that each trial times; default: 5");
  add_number(*command, "--time-limit", given->minutes, "Minutes for all trials; default: 10");
  in_group("Results");
  command->add_option("--write", given->write, "Write the fastest plan's config")
      ->type_name("FILE");
  command->add_option("--json", given->json, "Write all trials as JSON")->type_name("FILE");
  command->prefix_command();
  command->callback([given, command] {
    const std::vector<std::string> rest = program_words(*command);
    tune(tune_options(*given, rest.front(), {rest.begin() + 1, rest.end()}));
  });
}

}  // namespace zero::tool
