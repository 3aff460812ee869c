#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "optim/update_rules.h"
#include "zero/run/engine_core.h"

namespace zero {

namespace detail {

namespace {

constexpr std::int64_t most_skips_in_a_row = 50;

// One sum per thread.
void sum_squares(ThreadPool& pool, std::span<const std::byte> gradients, DType dtype,
                 std::vector<optim::NormBins>& partial) {
  std::fill(partial.begin(), partial.end(), optim::NormBins{});
  const auto parts = static_cast<std::int64_t>(partial.size());
  const std::int64_t count = static_cast<std::int64_t>(gradients.size()) / size_of(dtype);
  pool.run([&](int part) {
    const std::int64_t begin = count * part / parts;
    const std::int64_t end = count * (part + 1) / parts;
    optim::accumulate_norm(gradients.data() + begin * size_of(dtype), dtype, end - begin,
                           partial[part]);
  });
}

}  // namespace

// Every rank adds the slice that it owns in the layout, at every stage, so each element counts
// once.
void EngineCore::take_norm(ControlWord& word, Squares squares) {
  const During optimizer(clock_, StepClock::Activity::optimizer);
  word.bins = {};
  std::vector<optim::NormBins> partial(static_cast<std::size_t>(runtime_.pool().threads()));
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
    for (std::size_t s = 0; s < plan_.layout.flat_units[f].segments.size(); ++s) {
      const Segment& segment = plan_.layout.flat_units[f].segments[s];
      if (!segment.trainable) continue;
      const ArrayId gradient{static_cast<int>(f), static_cast<int>(s), ArrayKind::gradient};
      const DType dtype = store_->dtype_of(gradient);
      const std::int64_t first = rank() * segment.shard;
      std::int64_t end = first + segment.shard;
      if (squares == Squares::as_reduced) end = std::min(end, store_->end_in_memory(gradient));
      store_->visit(gradient, first, end, Access::read,
                    [&](std::int64_t, std::span<std::byte> part) {
                      sum_squares(runtime_.pool(), part, dtype, partial);
                      for (const optim::NormBins& bins : partial)
                        word.bins.add(state_->policy().counts(segment) ? bins : bins.without_sum());
                    });
    }
  if (tier_ && squares == Squares::as_reduced) word.bins.add(tier_->take_squares());
}

Verdict EngineCore::agree(const ControlWord& word) {
  const During waiting(clock_, StepClock::Activity::waiting);
  Verdict verdict = agree_on_step(ranks_, word);
  if (Ranks* model_parallel = ranks_.model_parallel())
    agree_over_model(*model_parallel, word, verdict);
  return verdict;
}

double EngineCore::summands() const {
  const double ranks = config_.gradient_allreduce_op == "sum" ? 1 : this->ranks();
  return ranks * static_cast<double>(plan_.batch.accumulation);
}

double EngineCore::inverse_scale() const {
  return state_->policy().precision.predivision / (summands() * gradient_scale_);
}

double EngineCore::gradient_norm() const {
  return verdict_.bins.norm() * inverse_scale();
}

double EngineCore::gradient_norm(std::string_view name) {
  const int index = model_.find(name);
  if (index < 0 || !param(index).options.trainable)
    throw UsageError("no trainable parameter is named \"" + std::string(name) + "\"");
  const Place& place = plan_.layout.place_of_param[index];
  const Segment& segment = flat(place.flat_unit).segments[place.segment];
  const ArrayId gradient{place.flat_unit, place.segment, ArrayKind::gradient};
  const DType dtype = store_->dtype_of(gradient);
  const std::int64_t begin = rank() * segment.shard;
  ControlWord word;
  word.step = step_count_ + 1;
  for (const Piece& piece : pieces_between(model_, segment, begin, begin + segment.shard))
    if (piece.param == index && state_->policy().counts(segment))
      store_->visit(gradient, piece.segment_begin, piece.segment_begin + piece.count, Access::read,
                    [&](std::int64_t, std::span<std::byte> part) {
                      optim::accumulate_norm(
                          part.data(), dtype,
                          static_cast<std::int64_t>(part.size()) / size_of(dtype), word.bins);
                    });
  return agree(word).bins.norm() * inverse_scale();
}

// The callback sees averages; what it leaves unchanged keeps its bits.
void EngineCore::edit_gradients(const std::function<void(ParamShard)>& change) {
  const auto inverse = static_cast<float>(inverse_scale());
  std::vector<float> before, values, raw;
  std::vector<std::byte> data;
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
    for (std::size_t s = 0; s < plan_.layout.flat_units[f].segments.size(); ++s) {
      const Segment& segment = plan_.layout.flat_units[f].segments[s];
      if (!segment.trainable) continue;
      const SegmentBuffers& buffers = state_->segment(static_cast<int>(f), static_cast<int>(s));
      const ArrayId gradient{static_cast<int>(f), static_cast<int>(s), ArrayKind::gradient};
      const std::int64_t begin = rank() * segment.shard;
      for (const Piece& piece : pieces_between(model_, segment, begin, begin + segment.shard)) {
        data.resize(static_cast<std::size_t>(piece.count * size_of(buffers.sum)));
        store_->read(gradient, piece.segment_begin, piece.segment_begin + piece.count, data.data());
        raw.resize(static_cast<std::size_t>(piece.count));
        optim::cast(data.data(), buffers.sum, raw.data(), DType::fp32, piece.count);
        values = raw;
        for (float& value : values) value *= inverse;
        before = values;
        const ParamDeclaration& declaration = param(piece.param);
        change({declaration.name, declaration.shape, piece.param_begin, values});
        for (std::size_t i = 0; i < values.size(); ++i)
          if (std::memcmp(&values[i], &before[i], sizeof(float)) != 0) raw[i] = values[i] / inverse;
        optim::cast(raw.data(), DType::fp32, data.data(), buffers.sum, piece.count);
        store_->write(gradient, piece.segment_begin, data);
      }
      if (collective() && !state_->policy().optimizer_sharded)
        transfer(static_cast<int>(f), [this, &segment, &buffers](const Wire& wire) {
          all_gather_whole(wire, segment, buffers.gradient_shard, buffers.sum_whole(), buffers.sum);
        });
    }
  runtime_.communication().synchronize();
  gradients_edited_ = true;
}

// Shows the agreed gradients to the program; what it changes and decides is agreed once more.
Decision EngineCore::inspect(const StepOptions& options, ControlWord& word) {
  Gradients gradients(*this);
  const Decision decision = options.inspect(gradients);
  if (gradients_edited_) take_norm(word, Squares::all);
  word.skip = decision == Decision::skip;
  verdict_ = agree(word);
  return decision;
}

float EngineCore::gradient_multiplier(double norm) const {
  return static_cast<float>(
      optim::clipped_multiplier(inverse_scale(), norm, config_.gradient_clipping));
}

// Of what the instruction changes and a save has yet to copy.
void EngineCore::await_copies(const Instruction& instruction) {
  if (instruction.op != Op::measure)
    return await_copy(plan_.inputs.chunks[instruction.target].flat_unit);
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f) await_copy(static_cast<int>(f));
}

// The rest of the update plan.
void EngineCore::conclude_update(bool skipped) {
  std::optional<UpdateTerms> terms;
  if (!skipped) {
    terms = UpdateTerms{{}, given_rate_};
    terms->scalars.step = ++applied_steps_;
    terms->scalars.gradient_multiplier = gradient_multiplier(gradient_norm());
  }
  if (!terms) return walker_->abandon();
  while (const Instruction* next = walker_->next_compute()) {
    const Instruction instruction = *next;
    walker_->enter(instruction.op, instruction.target);
    maybe_delay();
    run_update(instruction, *terms);
    walker_->leave(instruction.op, instruction.target);
  }
  walker_->finish();
}

void EngineCore::run_update(const Instruction& instruction, const UpdateTerms& terms) {
  const During optimizer(clock_, StepClock::Activity::optimizer);
  await_copies(instruction);
  if (instruction.op == Op::measure) return updater_->measure(terms);
  updater_->update(instruction.target, terms);
}

std::string EngineCore::locate_non_finite() {
  std::vector<float> values;
  std::vector<std::byte> data;
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
    for (std::size_t s = 0; s < plan_.layout.flat_units[f].segments.size(); ++s) {
      const Segment& segment = plan_.layout.flat_units[f].segments[s];
      if (!segment.trainable) continue;
      const ArrayId gradient{static_cast<int>(f), static_cast<int>(s), ArrayKind::gradient};
      const DType dtype = store_->dtype_of(gradient);
      const std::int64_t begin = rank() * segment.shard;
      for (const Piece& piece : pieces_between(model_, segment, begin, begin + segment.shard)) {
        data.resize(static_cast<std::size_t>(piece.count * size_of(dtype)));
        store_->read(gradient, piece.segment_begin, piece.segment_begin + piece.count, data.data());
        values.resize(static_cast<std::size_t>(piece.count));
        optim::cast(data.data(), dtype, values.data(), DType::fp32, piece.count);
        for (std::size_t i = 0; i < values.size(); ++i)
          if (!std::isfinite(values[i]))
            return param(piece.param).name + " (element " +
                   std::to_string(piece.param_begin + static_cast<std::int64_t>(i)) + ")";
      }
    }
  return "no parameter";
}

// The gradients of this step keep the scale that they were made with (DeepSpeed divides them by the
// new one, which halves the step whenever the scale grows).
void EngineCore::adjust_loss_scale(bool overflow) {
  scaler_.update(overflow);
  const float scale = scaler_.scale();
  if (scale == gradient_scale_) return;
  if (overflow && rank() == 0)
    std::fprintf(stderr, "zero: the loss scale falls from %g to %g\n",
                 static_cast<double>(gradient_scale_), static_cast<double>(scale));
}

// The lowest rank that owns a non-finite element names it, once per run of skips.
void EngineCore::report_skip(const Verdict& verdict) {
  const bool mine = !verdict.non_finite_ranks.empty() && verdict.non_finite_ranks.front() == rank();
  const std::string where = mine ? locate_non_finite() : "";
  if (mine && skipped_in_a_row_ == 0)
    std::fprintf(
        stderr,
        "zero: step %lld skipped on all ranks: non-finite gradient in %s, owned by rank %d%s\n",
        static_cast<long long>(step_count_), where.c_str(), rank(),
        hides_ ? "; in strict mode parameters read through a pointer after its scope are NaN" : "");
  if (++skipped_in_a_row_ < most_skips_in_a_row || scaler_.reaches_floor()) return;
  throw NumericError("gradients were not finite for " + std::to_string(most_skips_in_a_row) +
                     " steps in a row, last at step " + std::to_string(step_count_) +
                     (mine ? " in " + where : "") + "; lower the learning rate or clip gradients");
}

void EngineCore::name_unasked_gradients() {
  if (std::exchange(unasked_named_, true) || rank() != 0) return;
  std::string names;
  int count = 0;
  for (std::size_t p = 0; p < model_.params.size(); ++p)
    if (param(static_cast<int>(p)).options.trainable && param(static_cast<int>(p)).elements > 0 &&
        !ever_touched_[p] && ++count <= 8)
      names += (names.empty() ? "" : ", ") + param(static_cast<int>(p)).name;
  if (count > 0)
    std::fprintf(stderr, "zero: no gradient was asked for of %s%s; it counts as zero\n",
                 names.c_str(),
                 count > 8 ? (" and " + std::to_string(count - 8) + " more").c_str() : "");
}

void EngineCore::name_missing_losses() {
  if (losses_missing_ == 0 || rank() != 0 || std::exchange(missing_loss_named_, true)) return;
  std::fprintf(stderr,
               "zero: MicroStep::loss() was not called in %d of the %d micro steps of step %lld: "
               "they count as 0 in the loss that is reported\n",
               losses_missing_, accumulation(), static_cast<long long>(step_count_ + 1));
}

StepResult EngineCore::step_on_host(const StepOptions& options) {
  gradient_scale_ = scaler_.scale();
  given_rate_ = options.learning_rate;
  gradients_edited_ = false;
  learning_rate_ = options.learning_rate.value_or(plan_.updates.learning_rate(applied_steps_ + 1));
  walker_->begin(plan_.steps.update);
  walker_->enter(Op::agree, 0);
  ControlWord word;
  word.step = ++step_count_;
  word.collectives_hash = collectives_hash_;
  word.learning_rate = learning_rate_;
  word.loss = loss_sum_ / static_cast<double>(plan_.batch.accumulation);
  word.stop_requested = runtime_.stop_requested();
  word.inspects = static_cast<bool>(options.inspect);
  report_save(word);
  take_norm(word, Squares::as_reduced);
  verdict_ = agree(word);
  const double loss = verdict_.loss;
  if (options.inspect) inspect(options, word);
  walker_->leave(Op::agree, 0);

  const bool finite = verdict_.bins.non_finite == 0;
  const bool skipped = !finite || verdict_.skip;
  if (!finite)
    report_skip(verdict_);
  else
    skipped_in_a_row_ = 0;
  adjust_loss_scale(!finite);
  conclude_update(skipped);
  return {step_count_,     loss,    gradient_norm(),        learning_rate_,
          gradient_scale_, skipped, verdict_.stop_requested};
}

EngineCore::Stepped EngineCore::step(const StepOptions& options) {
  if (phase_ == Phase::micro_step) finish_micro_step();
  require(Phase::idle, "Engine::step()");
  if (micro_steps_done_ != accumulation())
    throw UsageError("Engine::step() was called after " + std::to_string(micro_steps_done_) +
                     " of " + std::to_string(accumulation()) +
                     " micro steps; run every element of Engine::micro_steps()");
  Stepped stepped;
  try {
    micro_steps_done_ = 0;
    name_unasked_gradients();
    name_missing_losses();
    if (device_step_)
      stepped.pending = step_on_device(options);
    else
      stepped.result = step_on_host(options);
    clock_.stop();
    if (hides_) hide_all_parameters();
  } catch (const std::exception& error) {
    poison(error.what());
    throw;
  }
  // The step stands, whatever has become of a save.
  advance_save();
  return stepped;
}

}  // namespace detail

double Gradients::loss() const {
  return core_.last_loss();
}
double Gradients::norm() const {
  return core_.gradient_norm();
}
double Gradients::norm(std::string_view name) const {
  return core_.gradient_norm(name);
}
void Gradients::edit(const std::function<void(ParamShard)>& change) {
  core_.edit_gradients(change);
}

}  // namespace zero
