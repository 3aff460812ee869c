// Names of spans for people: "gather of h.3", "wait for gather of h.3".
#pragma once

#include <string>

#include "zero/pass/spans.h"
#include "zero/plan/step_plan.h"

namespace zero::detail {

class TraceNames {
 public:
  // The inputs must outlive this object.
  explicit TraceNames(const PlanInputs& inputs) : inputs_(inputs) {}

  std::string name_of_span(const Span& span) const;
  // "gather of h.3": the instruction that the span is, belongs to or waits for; "" if there is
  // none.
  std::string instruction(const Span& span) const;
  // The same for a wait; "" if for no instruction of another stream or rank.
  std::string awaited(const Span& span) const;
  // The unit of that instruction; "" if there is none.
  std::string unit(const Span& span) const;
  // "h.3.attn.weight and 11 more": the parameters moved or used.
  std::string parameters(const Span& span) const;

 private:
  const PlanInputs& inputs_;
};

}  // namespace zero::detail
