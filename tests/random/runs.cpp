#include "tests/random/runs.h"

#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "tests/support/stderr_of.h"
#include "zero/testing.h"

namespace random_draws {

namespace {

std::string hexadecimal(std::uint64_t bits) {
  char text[24];
  std::snprintf(text, sizeof text, "%016" PRIx64, bits);
  return text;
}

std::string differing(const char* what, const std::vector<double>& expected,
                      const std::vector<double>& found) {
  if (expected.size() != found.size()) return std::string(what) + " of another number of steps; ";
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (std::bit_cast<std::uint64_t>(expected[i]) != std::bit_cast<std::uint64_t>(found[i])) {
      char text[120];
      std::snprintf(text, sizeof text, "%s %zu is %.17g, not %.17g; ", what, i, found[i],
                    expected[i]);
      return text;
    }
  return "";
}

// Makes calls that must not change the training.
template <class T>
void look(zero::Engine& engine, const Job& job, toy::Activations& activations) {
  const toy::Dims& dims = job.terms.dims;
  bool first = true;
  for (auto pass = engine.evaluate(); pass.next(first); first = false)
    toy::evaluate<T>(engine, dims, activations);
  std::vector<float> gain(static_cast<std::size_t>(dims.channels));
  engine.read("head.gain", "value", gain);
}

template <class T>
toy::Trace train(zero::Runtime& runtime, zero::Engine& engine, const Job& job, int steps) {
  const toy::Dims& dims = job.terms.dims;
  toy::Activations activations = toy::make_activations(dims);
  toy::Trace trace;
  while (engine.step_count() < steps) {
    const std::int64_t base = engine.step_count() * engine.batch().global;
    for (zero::MicroStep micro : engine.micro_steps()) {
      toy::load_samples(
          dims, activations,
          base + (micro.index() * runtime.size() + runtime.rank()) * std::int64_t{dims.batch});
      micro.loss(toy::micro_step<T>(engine, dims, activations, micro.loss_scale()));
    }
    const zero::StepResult result = engine.step().wait();
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.grad_norm);
    trace.scales.push_back(result.loss_scale);
    if (job.setting.looks) look<T>(engine, job, activations);
  }
  trace.digest = engine.digest();
  return trace;
}

toy::Trace train(zero::Runtime& runtime, zero::Engine& engine, const Job& job, int steps) {
  if (engine.compute_dtype() == zero::DType::bf16)
    return train<zero::bf16>(runtime, engine, job, steps);
  if (engine.compute_dtype() == zero::DType::fp16)
    return train<zero::fp16>(runtime, engine, job, steps);
  return train<float>(runtime, engine, job, steps);
}

std::string compare_memory(const char* what, const std::vector<zero::MemoryUse>& measured,
                           const std::vector<zero::MemoryUse>& planned) {
  std::string problem;
  for (const zero::MemoryUse& use : measured) {
    if (use.peak != use.planned)
      problem += use.category + " in " + what + ": " + std::to_string(use.peak) +
                 " bytes at the peak, " + std::to_string(use.planned) + " planned at start; ";
    if (use.category == "checkpoints") continue;  // plans do not include memory of saves
    for (const zero::MemoryUse& plan : planned)
      if (plan.category == use.category && plan.planned != use.planned)
        problem += use.category + " in " + what + ": " + std::to_string(use.planned) +
                   " bytes, and plan_memory() says " + std::to_string(plan.planned) + "; ";
  }
  return problem;
}

// Checks every rank, so also the one that holds the most.
std::string check_memory(const Job& job, const zero::Config& config,
                         const zero::EngineReport& report) {
  std::string problem;
  const int ranks = static_cast<int>(report.ranks.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const zero::RankReport& own = report.ranks[static_cast<std::size_t>(rank)];
    const zero::MemoryPlan plan =
        zero::plan_memory(toy::describe(job.terms.dims), config, ranks, false, rank);
    const std::string found = compare_memory("memory", own.memory, plan.memory) +
                              compare_memory("the file", own.in_file, plan.in_file);
    if (!found.empty()) problem += "rank " + std::to_string(rank) + ": " + found;
  }
  return problem;
}

void run_rank(zero::Runtime& runtime, const Job& job, const zero::Config& config,
              Outcome& outcome) {
  zero::Engine engine(runtime, toy::describe(job.terms.dims), config);
  Outcome own;
  if (job.load.empty()) {
    engine.initialize(toy::fill);
    own.before = train(runtime, engine, job, saved_step);
  } else {
    engine.resume(job.load);
    own.loaded = engine.digest();
  }
  std::optional<zero::SaveTicket> save;
  if (!job.save.empty()) save = engine.save_checkpoint(job.save);
  own.rest = train(runtime, engine, job, last_step);
  if (save) save->wait();
  const zero::EngineReport report = engine.report();
  if (!runtime.is_root()) return;
  own.encodings = report.encodings;
  own.problem = check_memory(job, config, report);
  outcome = own;
}

}  // namespace

std::string difference(const toy::Trace& expected, const toy::Trace& found) {
  std::string text = differing("loss", expected.losses, found.losses) +
                     differing("norm", expected.norms, found.norms) +
                     differing("scale", expected.scales, found.scales);
  if (expected.digest != found.digest)
    text += "digest " + hexadecimal(found.digest) + ", not " + hexadecimal(expected.digest) + "; ";
  return text;
}

Outcome run(const Job& job) {
  Outcome outcome;
  zero::RuntimeOptions options;
  options.executor = job.setting.executor;
  options.threads = 1;
  ::setenv("ZERO_STRICT", job.setting.strict ? "1" : "0", 1);
  zero::testing::inject_delays(1, job.setting.delays ? 60 : 0);
  outcome.printed = zero::tests::stderr_of([&] {
    try {
      const zero::Config config = config_of(job.terms, job.setting);
      zero::testing::run_ranks(
          job.terms.ranks, [&](zero::Runtime& runtime) { run_rank(runtime, job, config, outcome); },
          options);
    } catch (const zero::Error& error) {
      outcome.problem = error.what();
      outcome.exit_code = error.exit_code();
    } catch (const std::exception& error) {
      outcome.problem = "no zero::Error: " + std::string(error.what());
      outcome.exit_code = zero::Error::code;
    }
  });
  return outcome;
}

}  // namespace random_draws
