#include "zero/pass/scopes.h"

#include <algorithm>
#include <string>

#include "zero/base/text.h"

namespace zero::detail {

void Scopes::require_phase(Op op, int unit) const {
  const Phase phase = parts_.guard.phase();
  const std::string& name = parts_.train.model.units[unit].name;
  if (op == Op::forward && phase == Phase::full_model_elsewhere)
    throw UsageError("forward of unit " + name + ": rank " + std::to_string(parts_.train.rank()) +
                     " does not hold the full model; see Engine::materialize(only_rank)");
  if (phase != Phase::micro_step && !(phase == Phase::evaluation && op == Op::forward))
    throw UsageError(std::string(name_of(op)) + " of unit " + name +
                     " was called outside Engine::micro_steps()" +
                     (op == Op::forward ? " and Engine::evaluate()" : ""));
}

std::int64_t Scopes::enter(Op op, int unit) {
  const OpenScope scope{op, unit, ++newest_};
  parts_.guard.refuse_after_failure("a scope was opened");
  if (op == Op::forward && parts_.guard.phase() == Phase::full_model) return scope.number;
  require_phase(op, unit);
  parts_.guard.or_poison([&] {
    if (parts_.guard.phase() == Phase::evaluation)
      parts_.evaluations.admit(op, unit);
    else
      parts_.accumulation.admit(op, unit);
    parts_.passes.current().enter(scope);
    for (const int f : parts_.train.layout().needs_of_unit[unit]) parts_.hidden.show_parameters(f);
    open_ranges_[2 * unit + (op == Op::backward)].emplace(parts_.train.runtime, op,
                                                          parts_.train.model.units[unit].name);
    parts_.clock.turn_to({StepClock::Activity::kernels, op, unit});
  });
  return scope.number;
}

void Scopes::leave(const OpenScope& scope) noexcept {
  if (parts_.guard.full_model_lives()) return;
  if (!parts_.passes.micro_step.leave(scope) && !parts_.passes.evaluation.leave(scope)) return;
  open_ranges_[2 * scope.unit + (scope.op == Op::backward)].reset();
  const std::vector<OpenScope>& open = parts_.passes.current().open();
  parts_.clock.turn_to(open.empty() ? StepClock::Doing()
                                    : StepClock::Doing{StepClock::Activity::kernels, open.back().op,
                                                       open.back().unit});
}

int Scopes::find_param(int unit, std::string_view name) const {
  const TrainState& train = parts_.train;
  const UnitDeclaration& declaration = train.model.units[unit];
  for (const int index : declaration.params)
    if (train.param(index).short_name == name || train.param(index).name == name) return index;
  for (const std::string& borrowed : declaration.borrowed_names)
    if (borrowed == name) return train.model.find(name);
  std::vector<std::string> known = declaration.borrowed_names;
  for (const int index : declaration.params) known.push_back(train.param(index).short_name);
  const bool elsewhere = train.model.find(name) >= 0;
  throw UsageError(
      "unit " + declaration.name + " has no parameter \"" + std::string(name) + "\"" +
      (elsewhere ? "; it belongs to another unit: declare .uses(\"" + std::string(name) + "\")"
                 : hint_for(name, known)));
}

void Scopes::require_dtype(int param, DType dtype) const {
  const DType own = parts_.train.arrays.segment(parts_.train.place(param)).dtype;
  if (dtype != own)
    throw UsageError("parameter " + parts_.train.param(param).name + " is " + name_of(own) +
                     ", but " + name_of(dtype) + " was asked for; see Engine::compute_dtype()");
}

const void* Scopes::whole(int param, DType dtype) const {
  require_dtype(param, dtype);
  const Place& place = parts_.train.place(param);
  return parts_.train.arrays.segment(place)[ArrayKind::parameter].of(place.offset);
}

const void* Scopes::value(int unit, std::string_view name, DType dtype) const {
  return whole(find_param(unit, name), dtype);
}

// In a FullModel no pass is open, and each unit has the arrays of its first use.
int Scopes::use_of(const OpenScope& scope) const {
  for (const Pass* pass : {&parts_.passes.micro_step, &parts_.passes.evaluation})
    if (const auto open = std::ranges::find(pass->open(), scope); open != pass->open().end())
      return open->use;
  return 0;
}

void* Scopes::kept(const OpenScope& scope, std::string_view name, DType dtype) const {
  const UnitDeclaration& unit = parts_.train.model.units[scope.unit];
  const KeptArray array = parts_.train.kept(scope.unit, name, use_of(scope));
  if (!array.exists)
    throw UsageError("unit " + unit.name + " keeps no array \"" + std::string(name) + "\"" +
                     hint_among(unit.kept, name));
  if (dtype != array.dtype)
    throw UsageError("the array \"" + std::string(name) + "\" that unit " + unit.name +
                     " keeps is " + name_of(array.dtype) + ", but " + name_of(dtype) +
                     " was asked for");
  return array.data;
}

void* Scopes::input(const OpenScope& scope, bool gradient, DType dtype) const {
  const UnitRun run = parts_.train.model.run(parts_.train.model.run_of(scope.unit));
  if (scope.unit == run.begin && !run.links.before) return nullptr;
  if (scope.unit == run.begin)
    return kept(scope, gradient ? input_gradient_name : input_name, dtype);
  const KeptArray array = parts_.train.kept(
      scope.unit - 1, gradient ? output_gradient_name : output_name, use_of(scope));
  const std::string& before = parts_.train.model.units[scope.unit - 1].name;
  if (!array.exists)
    throw UsageError("unit " + before + " declares no output: add UnitSpec::output()");
  if (dtype != array.dtype)
    throw UsageError("the output of unit " + before + " is " + name_of(array.dtype) + ", but " +
                     name_of(dtype) + " was asked for");
  return array.data;
}

std::span<std::byte> Scopes::message(const OpenScope& scope, std::string_view name,
                                     std::optional<std::size_t> size) const {
  const Model& model = parts_.train.model;
  const UnitRun run = model.run(model.run_of(scope.unit));
  const bool first = scope.unit == run.begin, last = scope.unit + 1 == run.end;
  const bool crosses = (name == input_name && first && run.links.before) ||
                       (name == input_gradient_name && first && run.links.gradient_before) ||
                       (name == output_name && last && run.links.after) ||
                       (name == output_gradient_name && last && run.links.gradient_after);
  if (!crosses) return {};
  const int micro_batch = use_of(scope);
  if (!parts_.train.kept(scope.unit, name, micro_batch).sized_by_program)
    throw UsageError("the bytes of unit " + model.units[scope.unit].name +
                     "'s messages were asked for, and its output has a shape: declare output() "
                     "without one");
  return size ? parts_.train.messages.resize({scope.unit, name, micro_batch}, *size)
              : parts_.train.messages.at({scope.unit, name, micro_batch});
}

const void* Scopes::resident(std::string_view name, DType dtype) const {
  const int index = parts_.train.model.find(name);
  if (index < 0) throw UsageError("no parameter is named \"" + std::string(name) + "\"");
  return parts_.train.keeps_parameters() ? whole(index, dtype) : nullptr;
}

void* Scopes::gradient(int unit, std::string_view name, DType dtype, float* beta) {
  const int index = find_param(unit, name);
  const ParamDeclaration& declaration = parts_.train.param(index);
  if (!declaration.options.trainable)
    throw UsageError("parameter " + declaration.name + " is frozen and has no gradient");
  if (!parts_.passes.micro_step.inside(Op::backward, unit))
    throw UsageError("the gradient of " + declaration.name +
                     " was asked for outside a backward scope");
  require_dtype(index, dtype);
  return parts_.passes.gradients.request(index, beta);
}

}  // namespace zero::detail
