#include "zero/run/device_step.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "zero/base/error.h"
#include "zero/runtime/agreement.h"

namespace zero::detail {

namespace {

using optim::most_factors;
using optim::step_candidates;
using optim::StepRequest;
using optim::StepVerdict;
using optim::StepWord;

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
      check_(std::move(check)),
      parts_(plan, state),
      matrices_(runtime, plan, state,
                [this, transfer = std::move(transfer)](int unit, Ranks::Transfer work) {
                  between([&] { transfer(unit, std::move(work)); });
                }),
      groups_(std::max(1, static_cast<int>(plan.updates.groups().size()))) {
  written_ = runtime.compute().create_event();
  exchanged_ = runtime.communication().create_event();
  for (auto& event : decided_) event = runtime.compute().create_event();
}

DeviceStep::~DeviceStep() {
  for (const auto& weak : pending_)
    if (const auto step = weak.lock(); step && step->unresolved == this) try {
        resolve(*step);
      } catch (const std::exception&) {
        // The ticket then says "skipped"; the failure has been thrown where it happened.
        step->unresolved = nullptr;
      }
}

std::int64_t DeviceStep::upload_bytes() const {
  return Arena::rounded(sizeof(StepRequest)) +
         Arena::rounded(step_candidates * groups_ * most_factors * size_of(DType::fp32));
}

namespace {

std::int64_t bytes_on_device(std::int64_t upload, int slots, std::size_t ranges) {
  return slots * upload + Arena::rounded(sizeof(StepVerdict)) + Arena::rounded(sizeof(double)) +
         Arena::rounded(sizeof(optim::NormSum)) +
         Arena::rounded(static_cast<std::int64_t>(ranges * sizeof(optim::GroupRange))) +
         Arena::rounded(static_cast<std::int64_t>(ranges * sizeof(float)));
}

}  // namespace

void DeviceStep::plan(Ledger& ledger) const {
  ledger.plan(
      MemoryCategory::communication,
      exchanged_bytes() + bytes_on_device(upload_bytes(), ring_slots, parts_.ranges().size()));
  ledger.plan(MemoryCategory::host_pinned, pinned_bytes(), Tier::pinned);
}

std::int64_t DeviceStep::pinned_bytes() const {
  return ring_slots * (upload_bytes() + Arena::rounded(sizeof(StepVerdict))) +
         Arena::rounded(sizeof *pinned_failure_);
}

std::int64_t DeviceStep::exchanged_bytes() const {
  return Arena::rounded(sizeof(StepWord)) +
         Arena::rounded(plan_.layout.ranks * static_cast<std::int64_t>(sizeof(StepWord)));
}

void DeviceStep::allocate(Arena& exchanged, Ledger& ledger) {
  Device& device = runtime_.device();
  device_arena_ =
      device.reserve(bytes_on_device(upload_bytes(), ring_slots, parts_.ranges().size()),
                     Arena::Sharing::private_memory, "control words");
  pinned_arena_ = device.reserve_pinned(pinned_bytes(), "control words");
  pinned_failure_ = static_cast<std::int64_t*>(pinned_arena_.take(sizeof *pinned_failure_));
  ledger.take(MemoryCategory::communication, device_arena_.size() + exchanged_bytes());
  ledger.take(MemoryCategory::host_pinned, pinned_arena_.size(), Tier::pinned);
  for (int slot = 0; slot < ring_slots; ++slot) {
    uploads_[slot] = static_cast<std::byte*>(device_arena_.take(upload_bytes()));
    pinned_uploads_[slot] = static_cast<std::byte*>(pinned_arena_.take(upload_bytes()));
    pinned_verdicts_[slot] = static_cast<StepVerdict*>(pinned_arena_.take(sizeof(StepVerdict)));
  }
  verdict_ = static_cast<StepVerdict*>(device_arena_.take(sizeof(StepVerdict)));
  own_word_ = static_cast<StepWord*>(exchanged.take(sizeof(StepWord)));
  words_ = static_cast<StepWord*>(
      exchanged.take(plan_.layout.ranks * static_cast<std::int64_t>(sizeof(StepWord))));
  loss_sum_ = static_cast<double*>(device_arena_.take(sizeof(double)));
  matrix_norm_ = static_cast<optim::NormSum*>(device_arena_.take(sizeof(optim::NormSum)));
  device_ranges_ = static_cast<optim::GroupRange*>(device_arena_.take(
      static_cast<std::int64_t>(parts_.ranges().size() * sizeof(optim::GroupRange))));
  steps_ = static_cast<float*>(
      device_arena_.take(static_cast<std::int64_t>(parts_.ranges().size() * sizeof(float))));
  if (!parts_.ranges().empty())
    copy_and_wait(runtime_, device_ranges_, parts_.ranges().data(),
                  static_cast<std::int64_t>(parts_.ranges().size() * sizeof(optim::GroupRange)));
}

void DeviceStep::set_scaler(const optim::LossScalerState& state) {
  StepVerdict known;
  copy_and_wait(runtime_, &known, verdict_, sizeof known);
  known.scaler = state;
  known.next_loss_scale = static_cast<float>(state.scale);
  copy_and_wait(runtime_, verdict_, &known, sizeof known);
}

void DeviceStep::give_back(Ledger& ledger) const {
  ledger.give_back(MemoryCategory::communication, device_arena_.size() + exchanged_bytes());
  ledger.give_back(MemoryCategory::host_pinned, pinned_arena_.size(), Tier::pinned);
  ledger.plan(MemoryCategory::communication, -(device_arena_.size() + exchanged_bytes()));
  ledger.plan(MemoryCategory::host_pinned, -pinned_arena_.size(), Tier::pinned);
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

// Every rank adds the slice that it owns in the layout, so each element counts once; here, of what
// rests in the arena.
void DeviceStep::queue_norm(StateStore& store) {
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
    for (std::size_t s = 0; s < plan_.layout.flat_units[f].segments.size(); ++s) {
      const Segment& segment = plan_.layout.flat_units[f].segments[s];
      if (!segment.trainable) continue;
      const ArrayId array{static_cast<int>(f), static_cast<int>(s), ArrayKind::gradient};
      const std::byte* gradient =
          state_.segment(static_cast<int>(f), static_cast<int>(s)).gradient_shard;
      const std::int64_t first = state_.policy().rank * segment.shard;
      const std::int64_t count = std::min(segment.shard, store.end_in_memory(array) - first);
      queue([this, gradient, dtype = store.dtype_of(array), count](Stream stream) {
        if (count > 0) runtime_.kernels().add_norm(gradient, dtype, count, own_word_, stream);
      });
    }
}

// The words of all ranks; an exchange that is cut off leaves words of older steps, hence "skip".
void DeviceStep::queue_exchange() {
  if (plan_.layout.ranks == 1) {
    queue([this](Stream stream) {
      runtime_.device().copy(words_, own_word_, sizeof(StepWord), stream);
    });
    return;
  }
  between([&] {
    ranks_.communicate_control([this](comm::Communicator& communicator, Stream stream) {
      communicator.set_subject("agreement before a step");
      communicator.all_gather(own_word_, words_, optim::step_word_count, DType::int64, 0, stream);
    });
  });
}

std::shared_ptr<PendingStep> DeviceStep::agree(const StepRequest& request, const FillFactors& fill,
                                               StateStore& store) {
  step_ = request.step;
  runtime_.device().waits().set_subject("agreement before step " + std::to_string(step_));
  const auto slot = static_cast<std::size_t>(step_ % ring_slots);
  std::memcpy(pinned_uploads_[slot], &request, sizeof request);
  auto* factors =
      reinterpret_cast<float*>(pinned_uploads_[slot] + Arena::rounded(sizeof(StepRequest)));
  for (int candidate = 0; candidate < step_candidates; ++candidate)
    for (int group = 0; group < static_cast<int>(plan_.updates.groups().size()); ++group)
      fill(candidate, group, factors + (candidate * groups_ + group) * most_factors);
  queue([this, slot](Stream stream) {
    runtime_.device().copy(uploads_[slot], pinned_uploads_[slot], upload_bytes(), stream);
  });
  queue_norm(store);
  const StepRequest* uploaded = request_of(step_);
  queue([this, uploaded](Stream stream) {
    runtime_.kernels().seal(uploaded, loss_sum_, own_word_, stream);
    runtime_.device().copy(&own_word_->failed, pinned_failure_, sizeof own_word_->failed, stream);
  });
  queue_exchange();
  queue([this, uploaded, slot](Stream stream) {
    runtime_.kernels().decide(words_, plan_.layout.ranks, uploaded, verdict_, stream);
    runtime_.device().copy(pinned_verdicts_[slot], verdict_, sizeof(StepVerdict), stream);
    runtime_.device().fill_zero(own_word_, sizeof(StepWord), stream);
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

optim::DeviceUpdate DeviceStep::update_of(int chunk, const DevicePart& part,
                                          const ChunkView& view) const {
  const Chunk& own = plan_.inputs.chunks[chunk];
  optim::DeviceUpdate update = common_update();
  point_at(state_.segment(own.flat_unit, own.segment), view, plan_.updates.group(part.group),
           {part.begin, part.count}, update);
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
          each(part.rule, update_of(chunk, part, store.view(chunk)));
  };
  for_measured([&](optim::RuleKind rule, const optim::DeviceUpdate& update) {
    queue([this, rule, update](Stream stream) {
      runtime_.kernels().measure(rule, update, tensor_sums(), verdict_, stream);
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
      runtime_.kernels().take_steps(update, tensor_sums(), verdict_, stream);
    });
  });
}

void DeviceStep::update(int chunk, const ChunkView& view) {
  for (const DevicePart& part : parts_.of(chunk))
    queue([this, rule = part.rule, update = update_of(chunk, part, view)](Stream stream) {
      runtime_.kernels().update(rule, update, verdict_, stream);
    });
  matrices_.update(chunk, view, {common_update(), verdict_, matrix_norm_});
}

void DeviceStep::note_failure(int exit_code) noexcept {
  std::atomic_ref(*pinned_failure_).store(exit_code);
}

void DeviceStep::resolve(PendingStep& step) {
  if (step.unresolved == nullptr) return;
  const auto slot = static_cast<std::size_t>(step.number % ring_slots);
  decided_[slot]->synchronize();
  // A communicator that was ended lets its streams run on, to a verdict of skip; and so does a
  // thread that failed, to a verdict on what it should have read.
  runtime_.check_communicator();
  check_();
  step.verdict = *pinned_verdicts_[slot];
  step.unresolved = nullptr;
}

void throw_if_ranks_differ(const StepVerdict& verdict) {
  static constexpr Agreed fields[] = {Agreed::step, Agreed::step, Agreed::collectives,
                                      Agreed::learning_rate, Agreed::applied_steps};
  if (verdict.differs == 0) return;
  if (verdict.differs == static_cast<std::int64_t>(optim::Differs::failed))
    throw PeerFailed("before step " + std::to_string(verdict.differing_step) + " rank " +
                         std::to_string(verdict.differing_rank) + " failed beside its GPU",
                     static_cast<int>(verdict.value));
  raise("rank", {fields[verdict.differs], verdict.differing_step, verdict.value_of_root,
                 static_cast<int>(verdict.differing_rank), verdict.value});
}

}  // namespace zero::detail
