#include "zero/pass/plan_walker.h"

#include <algorithm>
#include <span>
#include <utility>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

// A backward scope writes to gradient slots only once the program has requested a gradient.
bool awaited_later(Op op, const ResourceAccess& access) {
  return op == Op::backward && access.resource == Resource::gradient_slot;
}

}  // namespace

PlanWalker::PlanWalker(const PlanInputs& inputs, Lanes lanes, StepClock& clock, Before before)
    : inputs_(inputs),
      lanes_(std::move(lanes)),
      clock_(clock),
      before_(std::move(before)),
      contents_(inputs.parameter_slots.slots, -1) {}

std::shared_ptr<PlanWalker::Mark> PlanWalker::create_mark(PlanStream stream) {
  auto& spare = spare_[stream];
  if (spare.empty()) {
    spare.push_back(std::make_unique<Mark>());
    spare.back()->stream = stream;
    spare.back()->event = at(stream).create_event();
  }
  std::unique_ptr<Mark> mark = std::move(spare.back());
  spare.pop_back();
  return {mark.release(), [&spare](Mark* unused) { spare.emplace_back(unused); }};
}

void PlanWalker::mark(std::size_t number) {
  const Instruction& instruction = plan_->instructions[number];
  const PlanStream stream = instruction.stream;
  const std::shared_ptr<Mark> mark = create_mark(stream);
  mark->number = ++finished_[stream][stream];
  mark->finished = finished_[stream];
  mark->op = instruction.op;
  mark->target = instruction.target;
  at(stream).record(*mark->event);
  for (const ResourceAccess& access : instruction.accesses) history_.add(access, stream, mark);
  done_[number] = 1;
}

void PlanWalker::follow(PlanStream stream, const ResourceAccess& access) {
  auto& finished = finished_[stream];
  history_.for_earlier(access, [&](const Point& point) {
    if (finished[point->stream] >= point->number) return;
    if (stream == PlanStream::compute) clock_.turn_to(point->op, point->target);
    at(stream).wait(*point->event);
    for (std::size_t s = 0; s < finished.size(); ++s)
      finished[s] = std::max(finished[s], point->finished[s]);
  });
}

void PlanWalker::list_steps() {
  for (auto& steps : steps_) steps.clear();
  for (std::size_t i = 0; i < plan_->instructions.size(); ++i)
    steps_[plan_->instructions[i].stream].push_back(i);
}

void PlanWalker::begin(const StepPlan& plan) {
  plan_ = &plan;
  list_steps();
  next_ = {};
  open_.clear();
  ended_.clear();
  open_.reserve(steps_[PlanStream::compute].size());
  ended_.reserve(steps_[PlanStream::compute].size());
  done_.assign(plan.instructions.size(), 0);
}

bool PlanWalker::may_come(Op op, int target) const {
  if (!active()) return false;
  const std::vector<std::size_t>& steps = steps_[PlanStream::compute];
  for (std::size_t next = next_[PlanStream::compute]; next < steps.size(); ++next) {
    const Instruction& own = plan_->instructions[steps[next]];
    if (own.is(op, target) || !is_optional(own)) return own.is(op, target);
  }
  return false;
}

void PlanWalker::enter(Op op, int target, std::int64_t scope) {
  settle();
  const Instruction* expected = next_compute();
  if (expected == nullptr || !expected->is(op, target)) {
    if (expected == nullptr)
      throw UsageError(describe({op, target, {}}) +
                       " was called outside of a pass: it belongs into a micro step "
                       "(Engine::micro_steps(), Engine::begin_micro_step()), or, in an evaluation, "
                       "behind a call of Evaluation::next(true), which comes before each batch");
    throw UsageError(describe({op, target, {}}) + " was called where " + describe(*expected) +
                     " comes next; units run forward in " +
                     (inputs_.model->learns_order
                          ? "the order of the first pass (Engine::forward_order())"
                          : "declaration order") +
                     ", then backward in Engine::backward_units() order");
  }
  open_next(scope);
}

void PlanWalker::open_next(std::int64_t scope) {
  const Instruction& next = *next_compute();
  pump();
  for (const std::size_t earlier : next.after)
    if (done_[earlier] == 0) {
      std::string open;
      for (const Open& other : open_)
        open += " " + inputs_.model->units[plan_->instructions[other.step].target].name;
      throw UsageError(describe(next) + " needs the slot of a scope that is still open (unit" +
                       open +
                       "); close it first, or allow more slots "
                       "(zero_optimization.stage3_prefetch_bucket_size)");
    }
  const During waiting(clock_, StepClock::Activity::waiting);
  for (const ResourceAccess& access : next.accesses)
    if (!awaited_later(next.op, access)) follow(PlanStream::compute, access);
  if (before_) before_(next, at(PlanStream::compute));
  open_.push_back({steps_[PlanStream::compute][next_[PlanStream::compute]++], scope});
}

bool PlanWalker::replaced_before_use(int flat_unit) const {
  const std::vector<int>& slot_of = inputs_.parameter_slots.slot_of;
  // Finds the first instruction of the stream that has not been issued and fits.
  const auto next = [&](PlanStream stream, const auto& fits) {
    const auto rest = std::span(steps_[stream]).subspan(next_[stream]);
    const auto found = std::ranges::find_if(rest, fits);
    return found == rest.end() ? plan_->instructions.size() : *found;
  };
  const std::size_t gather = next(PlanStream::communication, [&](std::size_t step) {
    const Instruction& instruction = plan_->instructions[step];
    return fills_slot(instruction.op) && slot_of[instruction.target] == slot_of[flat_unit];
  });
  return gather <
         next(
             PlanStream::compute, [&](std::size_t step) { return needs(step, flat_unit); });
}

bool PlanWalker::leave(Op op, int target, std::int64_t scope) noexcept {
  const auto open = std::ranges::find_if(open_, [&](const Open& other) {
    return other.scope == scope && plan_->instructions[other.step].is(op, target);
  });
  if (open == open_.end()) return false;
  ended_.push_back(open->step);  // within the reserved capacity
  open_.erase(open);
  return true;
}

void PlanWalker::settle_next() {
  const Instruction& instruction = *ended();
  for (const ResourceAccess& access : instruction.accesses)
    if (awaited_later(instruction.op, access)) await_gradient(access.index);
  mark(ended_.front());
  ended_.erase(ended_.begin());
}

// Reads first: a gather that runs inline blocks here, and reads should be in flight by then.
void PlanWalker::pump() {
  const During waiting(clock_, StepClock::Activity::waiting);
  const auto done = [&](std::size_t number) { return done_[number] != 0; };
  bool progress = true;
  while (progress) {
    progress = false;
    for (const PlanStream stream :
         {PlanStream::host, PlanStream::inbound, PlanStream::copies_in, PlanStream::updates,
          PlanStream::copies_out, PlanStream::outbound, PlanStream::communication})
      for (; next_[stream] < steps_[stream].size(); ++next_[stream], progress = true) {
        const std::size_t number = steps_[stream][next_[stream]];
        const Instruction& instruction = plan_->instructions[number];
        if (!std::ranges::all_of(instruction.after, done) || blocks_early(number)) break;
        clock_.turn_to(instruction.op, instruction.target);
        for (const ResourceAccess& access : instruction.accesses) follow(stream, access);
        if (before_) before_(instruction, at(stream));
        issue(instruction);
        if (fills_slot(instruction.op))
          contents_[inputs_.parameter_slots.slot_of[instruction.target]] = instruction.target;
        mark(number);
      }
  }
}

// A transfer between stages waits for the other stage, which would keep the program's thread from
// the scopes that come before the transfer.
bool PlanWalker::blocks_early(std::size_t number) const {
  const Instruction& instruction = plan_->instructions[number];
  const std::vector<std::size_t>& scopes = steps_[PlanStream::compute];
  const std::size_t next = next_[PlanStream::compute];
  return target_of(instruction.op) == Target::boundary && next < scopes.size() &&
         number > scopes[next] && lanes_[instruction.stream].stream->is_inline();
}

void PlanWalker::issue(const Instruction& instruction) {
  const Lane& lane = lanes_[instruction.stream];
  const Span span{.step = static_cast<std::int32_t>(clock_.step()),
                  .target = instruction.target,
                  .op = instruction.op,
                  .kind = Span::Kind::instruction,
                  .stream = instruction.stream};
  const auto sent = [&lane] { return lane.sent ? lane.sent() : 0; };
  const auto begin = [&spans = clock_.spans(), span, sent](Stream) {
    Span begun = span;
    begun.begin = steady_nanoseconds();
    begun.bytes = sent();
    spans.begin(begun);
  };
  const auto end = [&spans = clock_.spans(), stream = span.stream, sent](Stream) {
    spans.end(stream, sent());
  };
  lane.runs_on_host ? lane.stream->enqueue(begin) : begin({});
  lane.issue(instruction);
  lane.runs_on_host ? lane.stream->enqueue(end) : end({});
}

void PlanWalker::finish_forward() {
  settle();
  pump();
  if (forward_remains()) throw UsageError("forward ended before " + describe(*next_compute()));
}

void PlanWalker::pause() {
  if (active()) paused_ = {std::exchange(plan_, nullptr), next_, std::move(done_), contents_};
}

void PlanWalker::resume() {
  if (!paused_) return;
  Paused paused = *std::exchange(paused_, std::nullopt);
  if (inputs_.policy->parameters_sharded) {
    std::erase(paused.contents, -1);
    const StepPlan gathers = make_gather_plan(inputs_, paused.contents);
    walk(gathers);
  }
  plan_ = paused.plan;
  list_steps();
  next_ = paused.next;
  done_ = std::move(paused.done);
}

void PlanWalker::finish() {
  if (plan_ == nullptr) return;
  settle();
  pump();
  if (!open_.empty())
    throw UsageError(describe(plan_->instructions[open_.front().step]) +
                     " is still open at the end of the micro step");
  if (const Instruction* missing = next_compute())
    throw UsageError("the micro step ended before " + describe(*missing));
  plan_ = nullptr;
}

}  // namespace zero::detail
