// The optimizer step on a device, without the host waiting for it: the device compares the ranks'
// words, decides whether to apply the step, and picks learning rate and factors by its own count of
// applied steps. The host uploads one request per step through a pinned ring and reads the decision
// one step later. At most two steps are in flight. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optim/device_step.h"
#include "zero/plan/engine_plan.h"
#include "zero/run/device_parts.h"
#include "zero/run/matrix_update.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/state_store.h"

namespace zero::detail {

class DeviceStep;

// One step that the device was asked to make; its ticket and the engine share it.
struct PendingStep {
  std::int64_t number = 0;
  DeviceStep* unresolved = nullptr;  // null once the decision has been read
  optim::DeviceDecision decision;
};

class DeviceStep {
 public:
  // Queues an operation on the communication stream, as traffic of a flat unit.
  using Transfer = std::function<void(int flat_unit, Ranks::Transfer)>;

  // `check` throws where something has failed that the outcome of a step depends on.
  DeviceStep(RuntimeCore& runtime, Ranks& ranks, const EnginePlan& plan, const ModelState& state,
             Transfer transfer, std::function<void()> check);
  ~DeviceStep();
  DeviceStep(const DeviceStep&) = delete;

  // Enters its bytes into the ledger's plan; then allocate() takes them. The words that ranks
  // exchange come from the given arena.
  void plan(Ledger& ledger) const;
  std::int64_t exchanged_bytes() const { return exchanged_requests_.bytes(); }
  void allocate(Arena& exchanged, Ledger& ledger);
  void give_back(Ledger& ledger) const;

  // In the device's memory; 1 where nothing is scaled.
  const float* loss_scale() const { return &decision_->next_loss_scale; }
  // At start, and between steps: the state that the device goes on from.
  void set_scaler(const optim::LossScalerState& state);
  // Losses that are added from now on belong to a new step.
  void begin_losses();
  void add_loss(const float* loss);

  // The step's number decides which ring slot it takes; the step before last must be resolved.
  using FillFactors = std::function<void(int candidate, int group, float* factors)>;
  std::shared_ptr<PendingStep> agree(const optim::StepRequest& request, const FillFactors& fill,
                                     StateStore& store);
  // The first half of rules that need tensor norms, for all chunks.
  void measure(StateStore& store);
  void update(int chunk, const ChunkView& view);

  // The decision on the latest step in host memory, for work that comes after its agreement. It
  // stays until the step after next.
  const optim::DeviceDecision& decision_on_host() const {
    return *pinned_decisions_[step_ % ring_slots];
  }
  // Zeroed after every decision. Norms of offloaded gradients are added to it before the next
  // agree(), which adds those of gradients in the arena.
  optim::DeviceVote* own_vote() const { return own_vote_; }
  // Called by any thread whose work beside the device has failed, before it lets go on what waits
  // for it. No rank applies a step that is agreed on afterwards.
  void note_failure(int exit_code) noexcept;
  // Waits for the decision.
  void resolve(PendingStep& step);

 private:
  static constexpr int ring_slots = 2;

  optim::DeviceUpdate common_update() const;
  optim::DeviceUpdate update_of(const ChunkView& chunk, const DevicePart& part) const;
  optim::TensorSums* tensor_sums() const;
  MatrixSteps matrix_steps(const ChunkView& chunk);
  void request_memory();
  // What `communicate` queues runs after what is queued on the compute stream before, and before
  // what is queued there later.
  template <class Communicate>
  void between(const Communicate& communicate);

  // Of what one step uploads: the request, then factors by candidate and group.
  std::int64_t upload_bytes() const;
  const optim::StepRequest* request_of(std::int64_t step) const;
  void queue_norm(StateStore& store);
  void queue_exchange();
  void queue(std::function<void(Stream)> work);

  RuntimeCore& runtime_;
  Ranks& ranks_;
  const EnginePlan& plan_;
  const ModelState& state_;
  Transfer transfer_;
  std::function<void()> check_;
  DeviceParts parts_;
  int groups_;

  MemoryRequests device_requests_, exchanged_requests_, pinned_requests_{Tier::pinned};
  Arena device_arena_, pinned_arena_;
  std::byte* uploads_[ring_slots] = {};         // device
  std::byte* pinned_uploads_[ring_slots] = {};  // host
  optim::DeviceDecision* pinned_decisions_[ring_slots] = {};
  std::int64_t* pinned_failure_ = nullptr;
  optim::DeviceDecision* decision_ = nullptr;
  optim::DeviceVote* own_vote_ = nullptr;
  optim::DeviceVote* words_ = nullptr;  // of all ranks
  double* loss_sum_ = nullptr;
  optim::NormSum* matrix_norm_ = nullptr;  // of one matrix at a time
  optim::GroupRange* device_ranges_ = nullptr;
  float* steps_ = nullptr;  // by range
  std::int64_t step_ = 0;   // the latest that the device was asked to make
  std::unique_ptr<Event> written_, exchanged_, decided_[ring_slots];
  std::vector<std::weak_ptr<PendingStep>> pending_;
};

// Throws DisagreementError where the decision holds one.
void throw_if_ranks_differ(const optim::DeviceDecision& decision);

}  // namespace zero::detail
