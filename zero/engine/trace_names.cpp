#include "zero/engine/trace_names.h"

#include <vector>

#include "zero/base/text.h"

namespace zero::detail {

std::string TraceNames::unit(const Span& span) const {
  if (span.target < 0) return "";
  switch (target_of(span.op)) {
    case Target::unit:
      return inputs_.model->units[span.target].name;
    case Target::flat_unit:
      return inputs_.layout->flat_unit(span.target).name;
    case Target::chunk:
      return inputs_.layout->flat_unit(inputs_.chunks[span.target].flat_unit).name;
    case Target::all:
    case Target::boundary:
      break;
  }
  return "";
}

std::string TraceNames::instruction(const Span& span) const {
  if (span.op == Op::agree) return "agreement of the ranks";
  if (span.target < 0) return "";
  const std::string of = unit(span);
  return name_of(span.op) + (of.empty() ? "" : " of " + of);
}

std::string TraceNames::awaited(const Span& span) const {
  const bool of_others = span.op == Op::agree || stream_of(span.op) != PlanStream::compute;
  return of_others ? instruction(span) : "";
}

std::string TraceNames::name_of_span(const Span& span) const {
  const std::string what = instruction(span);
  switch (span.kind) {
    case Span::Kind::other:
      return "between scopes";
    case Span::Kind::waiting:
      return awaited(span).empty() ? "wait" : "wait for " + what;
    case Span::Kind::optimizer:
      return span.op == Op::agree ? "gradient norm" : what;
    case Span::Kind::step:
      return "step " + std::to_string(span.step);
    case Span::Kind::save:
      return "save";
    case Span::Kind::kernels:
    case Span::Kind::instruction:
      break;
  }
  return what;
}

std::string TraceNames::parameters(const Span& span) const {
  const Target target = target_of(span.op);
  if (span.target < 0 || target == Target::all || target == Target::boundary) return "";
  std::vector<std::string> names;
  if (target_of(span.op) == Target::unit) {
    for (const int param : inputs_.model->units[span.target].params)
      names.push_back(inputs_.model->params[param].name);
  } else {
    const int flat_unit =
        target_of(span.op) == Target::chunk ? inputs_.chunks[span.target].flat_unit : span.target;
    for (const Segment& segment : inputs_.layout->flat_unit(flat_unit).segments)
      for (const ParamPlace& place : segment.params)
        names.push_back(inputs_.model->params[place.param].name);
  }
  return list_of(names, 1);
}

}  // namespace zero::detail
