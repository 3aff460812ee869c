#include "zero/run/device_step.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "optim/device_orthogonalize.h"
#include "zero/base/error.h"
#include "zero/runtime/agreement.h"

namespace zero::detail {

namespace {

using optim::DeviceDecision;
using optim::DeviceVote;
using optim::most_factors;
using optim::step_candidates;
using optim::StepRequest;

}  // namespace

template <class Communicate>
void DeviceStep::between(const Communicate& communicate) {
  runtime_.compute().record(*written_);
  runtime_.communication().wait(*written_);
  communicate();
  runtime_.communication().record(*exchanged_);
  runtime_.compute().wait(*exchanged_);
}

DeviceStep::DeviceStep(RuntimeCore& runtime, Ranks& ranks, const EnginePlan& plan,
                       const ModelState& state, Transfer transfer, std::function<void()> check)
    : runtime_(runtime),
      ranks_(ranks),
      plan_(plan),
      state_(state),
      transfer_(std::move(transfer)),
      check_(std::move(check)),
      parts_(plan, state),
      groups_(std::max(1, static_cast<int>(plan.updates.groups().size()))) {
  request_memory();
  written_ = runtime.compute().create_event();
  exchanged_ = runtime.communication().create_event();
  for (auto& event : decided_) event = runtime.compute().create_event();
}

DeviceStep::~DeviceStep() {
  for (const auto& weak : pending_)
    if (const auto step = weak.lock(); step && step->unresolved == this) try {
        resolve(*step);
      } catch (const std::exception&) {
        // The ticket then says "skipped"; the failure was thrown where it happened.
        step->unresolved = nullptr;
      }
}

std::int64_t DeviceStep::upload_bytes() const {
  return Arena::rounded(sizeof(StepRequest)) +
         Arena::rounded(step_candidates * groups_ * most_factors * size_of(DType::fp32));
}

void DeviceStep::request_memory() {
  constexpr MemoryCategory on_device = MemoryCategory::communication;
  constexpr MemoryCategory pinned = MemoryCategory::host_pinned;
  const std::int64_t ranges = std::ssize(parts_.ranges());
  pinned_requests_.add(pinned, sizeof *pinned_failure_, pinned_failure_);
  for (int slot = 0; slot < ring_slots; ++slot) {
    device_requests_.add(on_device, upload_bytes(), uploads_[slot]);
    pinned_requests_.add(pinned, upload_bytes(), pinned_uploads_[slot]);
    pinned_requests_.add(pinned, sizeof(DeviceDecision), pinned_decisions_[slot]);
  }
  device_requests_.add(on_device, sizeof(DeviceDecision), decision_);
  device_requests_.add(on_device, sizeof(double), loss_sum_);
  device_requests_.add(on_device, sizeof(optim::NormSum), matrix_norm_);
  device_requests_.add(on_device, ranges * sizeof(optim::GroupRange), device_ranges_);
  device_requests_.add(on_device, ranges * sizeof(float), steps_);
  exchanged_requests_.add(on_device, sizeof(DeviceVote), own_vote_);
  exchanged_requests_.add(on_device, plan_.layout.ranks * sizeof(DeviceVote), words_);
}

void DeviceStep::plan(Ledger& ledger) const {
  for (const auto* requests : {&device_requests_, &exchanged_requests_, &pinned_requests_})
    requests->plan(ledger);
}

void DeviceStep::allocate(Arena& exchanged, Ledger& ledger) {
  Device& device = runtime_.device();
  device_arena_ = device.reserve(device_requests_.bytes(), Arena::Sharing::private_memory, "votes");
  pinned_arena_ = device.reserve_pinned(pinned_requests_.bytes(), "votes");
  device_requests_.take(device_arena_, ledger);
  exchanged_requests_.take(exchanged, ledger);
  pinned_requests_.take(pinned_arena_, ledger);
  if (!parts_.ranges().empty())
    copy_and_wait(runtime_, device_ranges_, parts_.ranges().data(),
                  std::ssize(parts_.ranges()) * sizeof(optim::GroupRange));
}

void DeviceStep::set_scaler(const optim::LossScalerState& state) {
  DeviceDecision known;
  copy_and_wait(runtime_, &known, decision_, sizeof known);
  known.scaler = state;
  known.next_loss_scale = static_cast<float>(state.scale);
  copy_and_wait(runtime_, decision_, &known, sizeof known);
}

void DeviceStep::give_back(Ledger& ledger) const {
  for (const auto* requests : {&device_requests_, &exchanged_requests_, &pinned_requests_})
    requests->give_back(ledger);
}

void DeviceStep::queue(std::function<void(Stream)> work) {
  runtime_.compute().enqueue(std::move(work));
}

const StepRequest* DeviceStep::request_of(std::int64_t step) const {
  return reinterpret_cast<const StepRequest*>(uploads_[step % ring_slots]);
}

void DeviceStep::begin_losses() {
  queue([this](Stream stream) { runtime_.device().fill_zero(loss_sum_, sizeof(double), stream); });
}

void DeviceStep::add_loss(const float* loss) {
  queue([this, loss](Stream stream) { runtime_.kernels().add_loss(loss, loss_sum_, stream); });
}

// Every rank adds the shard that it owns in the layout, so that each element counts once. Gradients
// outside the arena have been added before.
void DeviceStep::queue_norm(StateStore& store) {
  for (const SegmentId& id : plan_.layout.segments()) {
    const Segment& segment = plan_.layout.segment(id);
    if (!segment.trainable) continue;
    const Range shard = segment.shard_of(state_.policy().rank);
    const ArrayId array{id, ArrayKind::gradient};
    const std::int64_t count = std::min(shard.end, store.end_in_memory(array)) - shard.begin;
    queue([this, gradient = state_.segment(id).gradient_shard, dtype = store.dtype_of(array),
           count](Stream stream) {
      if (count > 0) runtime_.kernels().add_norm(gradient, dtype, count, own_vote_, stream);
    });
  }
}

// Brings together the words of all ranks. An exchange that is cut off leaves words of older steps,
// which makes the decision "skip".
void DeviceStep::queue_exchange() {
  if (plan_.layout.ranks == 1) {
    queue([this](Stream stream) {
      runtime_.device().copy(words_, own_vote_, sizeof(DeviceVote), stream);
    });
    return;
  }
  between([&] {
    ranks_.communicate_control([this](comm::Communicator& communicator, Stream stream) {
      communicator.set_subject("agreement before a step");
      communicator.all_gather(own_vote_, words_, optim::step_word_count, DType::int64, 0, stream);
    });
  });
}

std::shared_ptr<PendingStep> DeviceStep::agree(const StepRequest& request, const FillFactors& fill,
                                               StateStore& store) {
  step_ = request.step;
  runtime_.device().waits().set_subject("agreement before step " + std::to_string(step_));
  const std::int64_t slot = step_ % ring_slots;
  std::memcpy(pinned_uploads_[slot], &request, sizeof request);
  auto* factors =
      reinterpret_cast<float*>(pinned_uploads_[slot] + Arena::rounded(sizeof(StepRequest)));
  for (int candidate = 0; candidate < step_candidates; ++candidate)
    for (int group = 0; group < std::ssize(plan_.updates.groups()); ++group)
      fill(candidate, group, factors + (candidate * groups_ + group) * most_factors);
  queue([this, slot](Stream stream) {
    runtime_.device().copy(uploads_[slot], pinned_uploads_[slot], upload_bytes(), stream);
  });
  queue_norm(store);
  const StepRequest* uploaded = request_of(step_);
  queue([this, uploaded](Stream stream) {
    runtime_.kernels().seal(uploaded, loss_sum_, own_vote_, stream);
    runtime_.device().copy(&own_vote_->failed, pinned_failure_, sizeof own_vote_->failed, stream);
  });
  queue_exchange();
  queue([this, uploaded, slot](Stream stream) {
    runtime_.kernels().decide(words_, plan_.layout.ranks, uploaded, decision_, stream);
    runtime_.device().copy(pinned_decisions_[slot], decision_, sizeof(DeviceDecision), stream);
    runtime_.device().fill_zero(own_vote_, sizeof(DeviceVote), stream);
  });
  runtime_.compute().record(*decided_[slot]);
  const auto pending = std::make_shared<PendingStep>();
  pending->number = step_;
  pending->unresolved = this;
  std::erase_if(pending_, [](const auto& weak) { return weak.expired(); });
  pending_.push_back(pending);
  return pending;
}

optim::DeviceUpdate DeviceStep::common_update() const {
  optim::DeviceUpdate update;
  update.factors = reinterpret_cast<const float*>(uploads_[step_ % ring_slots] +
                                                  Arena::rounded(sizeof(StepRequest)));
  update.groups = groups_;
  return update;
}

namespace {

void point_at(const UpdateView& view, optim::DeviceUpdate& update) {
  update.count = view.count;
  update.gradient = view.gradient;
  update.gradient_dtype = view.gradient_dtype;
  update.master = view.master;
  update.master_dtype = view.master_dtype;
  std::copy(view.states.begin(), view.states.end(), update.states);
  update.state_dtype = view.state_dtype;
  update.parameter = view.parameter;
  update.parameter_dtype = view.dtype;
}

}  // namespace

optim::DeviceUpdate DeviceStep::update_of(const ChunkView& chunk, const DevicePart& part) const {
  optim::DeviceUpdate update = common_update();
  point_at(chunk.part(part.range, plan_.updates.group(part.group).states), update);
  update.ranges = device_ranges_ + part.first_range;
  update.range_count = part.range_count;
  update.steps = steps_ + part.first_range;
  return update;
}

optim::TensorSums* DeviceStep::tensor_sums() const {
  static_assert(optim::tensor_sum_words == 2 * words_per_norm);
  return reinterpret_cast<optim::TensorSums*>(state_.tensor_norms());
}

void DeviceStep::measure(StateStore& store) {
  const std::int64_t words = state_.policy().norm_words;
  queue([this, words](Stream stream) {
    runtime_.device().fill_zero(tensor_sums(), words * size_of(DType::int64), stream);
  });
  const auto for_measured = [&](const auto& each) {
    for (int chunk = 0; chunk < parts_.chunks(); ++chunk)
      for (const DevicePart& part : parts_.of(chunk))
        if (optim::sees_tensor_norms(part.rule))
          each(part.rule, update_of(store.view(chunk), part));
  };
  for_measured([&](optim::RuleKind rule, const optim::DeviceUpdate& update) {
    queue([this, rule, update](Stream stream) {
      runtime_.kernels().measure(rule, update, tensor_sums(), decision_, stream);
    });
  });
  if (plan_.layout.ranks > 1 && state_.policy().optimizer_sharded)
    between([&] {
      ranks_.communicate_control([this, words](comm::Communicator& communicator, Stream stream) {
        communicator.set_subject("the norms of tensors");
        communicator.all_reduce(tensor_sums(), words, DType::int64, stream);
      });
    });
  for_measured([&](optim::RuleKind, const optim::DeviceUpdate& update) {
    queue([this, update](Stream stream) {
      runtime_.kernels().take_steps(update, tensor_sums(), decision_, stream);
    });
  });
}

void DeviceStep::update(int chunk, const ChunkView& view) {
  for (const DevicePart& part : parts_.of(chunk))
    queue([this, rule = part.rule, update = update_of(view, part)](Stream stream) {
      runtime_.kernels().update(rule, update, decision_, stream);
    });
  update_matrices(plan_, state_, view, matrix_steps(view));
}

// All is queued whether the step is applied or not: a step that is skipped moves directions that
// nobody takes.
MatrixSteps DeviceStep::matrix_steps(const ChunkView& chunk) {
  const auto update_of = [this, &chunk](const PlannedMatrix& matrix, const Range& range) {
    optim::DeviceUpdate update = common_update();
    point_at(chunk.part(range, plan_.updates.group(matrix.group).states), update);
    update.group = matrix.group;
    return update;
  };
  MatrixSteps steps;
  steps.direct = [=, this](const PlannedMatrix& matrix, const Range& range, float* directions) {
    queue([this, update = update_of(matrix, range), directions](Stream stream) {
      runtime_.kernels().direct(update, directions, decision_, stream);
    });
  };
  steps.travel = [&](const float* from, float* to, const comm::PairCounts& counts) {
    between([&] {
      transfer_(chunk.id.flat_unit,
                [from, to, &counts](comm::Communicator& communicator, Stream stream) {
                  communicator.all_to_all(from, to, counts, DType::fp32, stream);
                });
    });
  };
  steps.orthogonalize = [this](const PlannedMatrix& matrix, float* values) {
    const bool gram =
        optim::rule_kind(plan_.updates.group(matrix.group).options) == optim::RuleKind::muon_gram;
    const optim::DeviceMatrix on_device{matrix.shape, values, state_.matrix_scratch(),
                                        matrix_norm_};
    queue([this, gram, on_device](Stream stream) {
      optim::orthogonalize(runtime_.kernels(),
                           gram ? optim::NewtonSchulz::gram : optim::NewtonSchulz::standard,
                           on_device, stream);
    });
  };
  steps.step = [=, this](const PlannedMatrix& matrix, const Range& range, const float* directions) {
    optim::DeviceUpdate update = update_of(matrix, range);
    update.gradient = directions;
    update.gradient_dtype = DType::fp32;
    queue([this, update, scale = matrix.shape.scale](Stream stream) {
      runtime_.kernels().step_along(update, scale, decision_, stream);
    });
  };
  return steps;
}

void DeviceStep::note_failure(int exit_code) noexcept {
  std::atomic_ref(*pinned_failure_).store(exit_code);
}

void DeviceStep::resolve(PendingStep& step) {
  if (step.unresolved == nullptr) return;
  const std::int64_t slot = step.number % ring_slots;
  decided_[slot]->synchronize();
  // A communicator that was ended lets its streams run on to a decision of skip, and a thread that
  // failed lets them run on to a decision on what it should have read; these report either.
  runtime_.check_communicator();
  check_();
  step.decision = *pinned_decisions_[slot];
  step.unresolved = nullptr;
}

void throw_if_ranks_differ(const DeviceDecision& decision) {
  static constexpr Agreed fields[] = {Agreed::step, Agreed::step, Agreed::collectives,
                                      Agreed::learning_rate, Agreed::applied_steps};
  if (decision.differs == 0) return;
  if (decision.differs == static_cast<std::int64_t>(optim::Differs::failed))
    throw PeerFailed("before step " + std::to_string(decision.differing_step) + " rank " +
                         std::to_string(decision.differing_rank) + " failed beside its GPU",
                     static_cast<int>(decision.value));
  raise("rank", {fields[decision.differs], decision.differing_step, decision.value_of_root,
                 static_cast<int>(decision.differing_rank), decision.value});
}

}  // namespace zero::detail
