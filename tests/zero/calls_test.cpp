// Every row of the table of calls (zero/runtime/calls.h), made in every phase of an engine.
#include "zero/runtime/calls.h"

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <vector>

#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace {

using zero::detail::Call;
using zero::detail::Phase;
using zero::tests::contains;
using zero::tests::refusal;

const toy::Dims dims;
constexpr const char* parameter = "embed.unused";

void run_micro_step(zero::Engine& engine, zero::MicroStep micro) {
  toy::Activations a = toy::make_activations(dims);
  toy::load_samples(dims, a, 0);
  micro.loss(toy::micro_step<float>(engine, dims, a, micro.loss_scale()));
}

// Calls of the program that return to the phase in which they came.
std::map<Call, std::function<void(zero::Engine&)>> calls(const std::string& directory) {
  thread_local std::vector<float> values(7);
  return {
      {Call::initialize, [](zero::Engine& e) { e.initialize(toy::fill); }},
      {Call::initialize_rest, [](zero::Engine& e) { e.initialize_rest(toy::fill); }},
      {Call::open_checkpoints, [=](zero::Engine& e) { e.open_checkpoints(directory); }},
      {Call::resume, [=](zero::Engine& e) { e.resume(directory + "/none", zero::Resume::if_any); }},
      {Call::write, [](zero::Engine& e) { e.write(parameter, values); }},
      {Call::write_state, [](zero::Engine& e) { e.write_state(parameter, "exp_avg", values); }},
      {Call::read, [](zero::Engine& e) { e.read(parameter, "value", values); }},
      {Call::read_gradient, [](zero::Engine& e) { e.read_gradient(parameter, values); }},
      {Call::digest, [](zero::Engine& e) { e.digest(); }},
      {Call::export_model, [=](zero::Engine& e) { e.export_model(directory + "/model"); }},
      {Call::write_trace, [=](zero::Engine& e) { e.write_trace(directory + "/trace"); }},
      {Call::save_checkpoint,
       [=](zero::Engine& e) { e.save_checkpoint(directory, {.replace = true}).wait(); }},
      {Call::materialize, [](zero::Engine& e) { const zero::FullModel model = e.materialize(); }},
      {Call::evaluate, [](zero::Engine& e) { const zero::Evaluation evaluation = e.evaluate(); }},
      {Call::report, [](zero::Engine& e) { e.report(); }},
  };
}

// Makes each call, and compares the refusals with the table.
void make_calls(zero::Engine& engine, Phase phase, const std::string& directory) {
  for (const auto& [call, make] : calls(directory)) {
    const zero::detail::CallRule& rule = zero::detail::rule_of(call);
    CAPTURE(std::string(rule.name));
    if (rule.valid.contains(phase)) {
      CHECK_NOTHROW(make(engine));
    } else {
      const std::string text = refusal<zero::UsageError>([&] { make(engine); });
      CHECK(contains(text, rule.name));
      CHECK(contains(text, zero::detail::text_of(phase)));
    }
  }
}

}  // namespace

TEST_CASE("calls are accepted in the phases of their rows, and refused in all others") {
  const zero::tests::TemporaryDirectory directory;
  for (const int stage : {0, 3})
    zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims, 2));
      engine.initialize(toy::fill);
      make_calls(engine, Phase::between_steps, directory.path().string());
      {
        zero::Evaluation evaluation = engine.evaluate();
        make_calls(engine, Phase::evaluation, directory.path().string());
      }
      {
        const zero::FullModel model = engine.materialize();
        make_calls(engine, Phase::full_model, directory.path().string());
      }
      for (zero::MicroStep micro : engine.micro_steps()) run_micro_step(engine, micro);
      CHECK(engine.step().wait().step == 1);
    });
}

TEST_CASE("calls among micro steps are refused by their rows, and lose nothing") {
  const zero::tests::TemporaryDirectory directory;
  zero::Runtime runtime = zero::Runtime::single();
  zero::Engine engine(runtime, toy::describe(dims), toy::config(3, dims, 2));
  engine.initialize(toy::fill);
  for (zero::MicroStep micro : engine.micro_steps()) {
    run_micro_step(engine, micro);
    for (const auto& [call, make] : calls(directory.path().string())) {
      const zero::detail::CallRule& rule = zero::detail::rule_of(call);
      CAPTURE(std::string(rule.name));
      if (rule.among == zero::detail::Among::yes)
        CHECK_NOTHROW(make(engine));
      else
        CHECK(contains(refusal<zero::UsageError>([&] { make(engine); }),
                       std::string(rule.name) + " was called among the micro steps"));
    }
  }
  CHECK(engine.step().wait().step == 1);
}
