#include "zero/pass/agreed_scopes.h"

#include <limits>
#include <string>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

constexpr std::int64_t nothing_more = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::int64_t AgreedScopes::word_of(Kind kind, int unit) const {
  const std::int64_t units = std::ssize(train_.model.units);
  return static_cast<std::int64_t>(kind) * units +
         (kind == Kind::backward ? units - 1 - unit : unit);
}

void AgreedScopes::open(Kind kind, const Open& scope, const Agreed& agreed) {
  train_.runtime.compute().synchronize();  // no kernel reads a slot any more
  const std::int64_t own = word_of(kind, scope.unit);
  while (advance(own, agreed) != own) {
  }
  open_.push_back(scope);
}

void AgreedScopes::enter(Op op, int unit, std::int64_t scope, const Agreed& agreed) {
  open(op == Op::forward ? Kind::forward : Kind::backward, {op, unit, scope}, agreed);
}

void AgreedScopes::reopen(int unit, std::int64_t scope, const Agreed& agreed) {
  open(Kind::reopened, {Op::forward, unit, scope}, agreed);
}

void AgreedScopes::note(int unit, const Agreed& agreed) {
  const std::int64_t own = word_of(Kind::noted, unit);
  while (advance(own, agreed) != own) {
  }
}

void AgreedScopes::finish(const Agreed& agreed) {
  train_.runtime.compute().synchronize();
  while (!alone_ && advance(nothing_more, agreed) != nothing_more) {
  }
}

std::int64_t AgreedScopes::advance(std::int64_t wanted, const Agreed& agreed) {
  const std::int64_t next =
      alone_ ? wanted : std::ranges::min(train_.ranks.gather_words(subject_, {wanted}));
  if (next == nothing_more) return next;
  const std::int64_t units = std::ssize(train_.model.units);
  const auto kind = static_cast<Kind>(next / units);
  const auto place = static_cast<int>(next % units);
  const int unit = kind == Kind::backward ? static_cast<int>(units) - 1 - place : place;
  const Op op = kind == Kind::backward ? Op::backward : Op::forward;
  if (kind != Kind::reopened) agreed(op, unit);
  if (kind != Kind::noted) gather(op, unit);
  return next;
}

void AgreedScopes::gather(Op op, int unit) {
  const PlanInputs& inputs = train_.plan.inputs;
  if (!inputs.policy->parameters_sharded) return;
  std::vector<int> missing;
  for (const int flat : train_.layout().needs_of_unit[unit]) {
    const int content = walker_.contents()[inputs.parameter_slots.slot_of[flat]];
    if (content == flat) continue;
    for (const Open& open : open_)
      if (content >= 0 && train_.layout().needs(open.unit, content))
        throw UsageError(std::string(name_of(op)) + " of unit " + train_.model.units[unit].name +
                         " needs the slot of unit " + train_.model.units[open.unit].name +
                         ", whose scope is still open; close it first, or declare "
                         "UnitSpec::within() if one runs within the other");
    missing.push_back(flat);
  }
  gathers_ = make_gather_plan(inputs, missing);
  walker_.begin(gathers_);
  walker_.finish();
  train_.runtime.communication().synchronize();
}

}  // namespace zero::detail
