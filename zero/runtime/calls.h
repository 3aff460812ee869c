// The program's calls to an engine: a table of the phases in which a call may come, the work that
// the call waits for, and the phases afterwards. CallGuard checks the table; Accumulation ends
// micro steps and passes before a call.
#pragma once

#include <array>
#include <cstdint>

namespace zero::detail {

// The state of an engine between two calls.
enum class Phase : std::uint8_t {
  between_steps,  // also between the micro steps of a step
  micro_step,
  evaluation,
  full_model,            // a FullModel exists, on this rank
  full_model_elsewhere,  // a FullModel exists on another rank
};

constexpr const char* text_of(Phase phase) {
  switch (phase) {
    case Phase::between_steps:
      return "between steps";
    case Phase::micro_step:
      return "inside a micro step";
    case Phase::evaluation:
      return "inside an evaluation";
    case Phase::full_model:
    case Phase::full_model_elsewhere:
      return "while a FullModel lives";
  }
  return "";
}

class Phases {
 public:
  template <class... Names>
  explicit constexpr Phases(Names... phases) : bits_((0u | ... | bit(phases))) {}
  constexpr bool contains(Phase phase) const { return (bits_ & bit(phase)) != 0; }

 private:
  static constexpr unsigned bit(Phase phase) { return 1u << static_cast<unsigned>(phase); }
  unsigned bits_;
};

// Whether a call may come after some micro steps of the next step have run. If so, and the order of
// calls is free (ModelSpec::any_order()), an open micro step whose backward has not begun may
// continue after the call.
enum class Among : std::uint8_t {
  no,
  unless_read_ahead,  // only if the order is free, no pass is open, and no state is offloaded
  between_passes,     // only if the order is free and no pass is open
  free_order,         // only if the order is free
  yes,
};

// Each includes those before. decisions: every rank has read the decisions on all steps; work: no
// work is in flight; save: a pending save is finished.
enum class Waits : std::uint8_t { nothing, decisions, work, save };

enum class Call : std::uint8_t {
  initialize,
  initialize_rest,
  open_checkpoints,
  resume,
  load_weights,
  adopt,
  write,
  write_state,
  visit,
  read,
  read_gradient,
  digest,
  export_model,
  stream_weights,
  changes,
  next_changes,
  gather,
  write_trace,
  save_checkpoint,
  copy_to_peers,
  wait_for_save,
  materialize,
  end_full_model,
  evaluate,
  next_evaluation,
  end_evaluation,
  drop_gradients,
  micro_step,
  more_micro_steps,
  step,
  report,
  end,
};
inline constexpr int call_count = static_cast<int>(Call::end) + 1;

struct CallRule {
  Call call;
  const char* name;
  Phases valid;
  Among among = Among::yes;
  Waits waits = Waits::nothing;
  // Phases after the call; none: the phase stays.
  Phases leads_to{};
};

namespace calls {

inline constexpr Phases rest(Phase::between_steps, Phase::micro_step);
inline constexpr Phases between(Phase::between_steps);
inline constexpr Phases full(Phase::full_model, Phase::full_model_elsewhere);
inline constexpr Phases any(Phase::between_steps, Phase::micro_step, Phase::evaluation,
                            Phase::full_model, Phase::full_model_elsewhere);

// micro_step and step end an open micro step; in every other row an open micro step continues.
inline constexpr std::array<CallRule, call_count> table = {{
    {Call::initialize, "Engine::initialize()", rest, Among::no, Waits::save},
    {Call::initialize_rest, "Engine::initialize_rest()", rest, Among::no, Waits::save},
    {Call::open_checkpoints, "Engine::open_checkpoints()", rest, Among::no, Waits::save},
    {Call::resume, "Engine::resume()", rest, Among::no, Waits::save},
    {Call::load_weights, "Engine::load_weights()", rest, Among::unless_read_ahead, Waits::save},
    {Call::adopt, "Engine::adopt()", rest, Among::unless_read_ahead, Waits::save},
    {Call::write, "Engine::write()", rest, Among::unless_read_ahead, Waits::save},
    {Call::write_state, "Engine::write_state()", rest, Among::unless_read_ahead, Waits::save},
    {Call::visit, "Engine::visit()", between, Among::no, Waits::save},
    {Call::read, "Engine::read()", rest, Among::yes, Waits::work},
    {Call::read_gradient, "Engine::read_gradient()", rest, Among::yes, Waits::work},
    {Call::digest, "Engine::digest()", rest, Among::yes, Waits::work},
    {Call::export_model, "Engine::export_model()", rest, Among::yes, Waits::work},
    {Call::stream_weights, "Engine::stream_weights()", rest, Among::yes, Waits::work},
    {Call::changes, "Engine::changes()", rest, Among::yes, Waits::work},
    {Call::next_changes, "ChangeStream::next()", rest, Among::yes, Waits::work},
    {Call::gather, "Engine::gather()", rest, Among::yes, Waits::work},
    {Call::write_trace, "Engine::write_trace()", rest, Among::yes, Waits::work},
    {Call::save_checkpoint, "Engine::save_checkpoint()", rest, Among::free_order, Waits::decisions},
    {Call::copy_to_peers, "Engine::copy_to_peers()", rest, Among::free_order, Waits::decisions},
    {Call::wait_for_save, "SaveTicket::wait()", rest, Among::no, Waits::work},
    {Call::materialize, "Engine::materialize()", between, Among::yes, Waits::work, full},
    {Call::end_full_model, "the end of a FullModel", full, Among::yes, Waits::nothing, between},
    // Anytime in a micro step if no evaluation needs another rank.
    {Call::evaluate, "Engine::evaluate()", rest, Among::between_passes, Waits::nothing,
     Phases(Phase::evaluation)},
    {Call::next_evaluation, "Evaluation::next()", Phases(Phase::evaluation)},
    {Call::end_evaluation, "the end of an evaluation", Phases(Phase::evaluation), Among::yes,
     Waits::nothing, rest},
    {Call::drop_gradients, "Engine::drop_gradients()", any},
    {Call::micro_step, "a micro step", between, Among::yes, Waits::nothing, rest},
    {Call::more_micro_steps, "the comparison of repeated micro batches", between},
    {Call::step, "Engine::step()", between},
    {Call::report, "Engine::report()", any, Among::yes, Waits::work},
    {Call::end, "the end of the engine", any},
}};

}  // namespace calls

// Calls that give an engine its first values, or may: the program may hold a copy of these values
// until the last such call.
constexpr bool gives_values(Call call) {
  switch (call) {
    case Call::initialize:
    case Call::initialize_rest:
    case Call::load_weights:
    case Call::adopt:
    case Call::write:
    case Call::end:
      return true;
    default:
      return false;
  }
}

constexpr const CallRule& rule_of(Call call) {
  return calls::table[static_cast<std::size_t>(call)];
}
static_assert(
    [] {
      for (int i = 0; i < call_count; ++i)
        if (calls::table[i].call != static_cast<Call>(i)) return false;
      return true;
    }(),
    "the rows are in the order of the calls");

}  // namespace zero::detail
