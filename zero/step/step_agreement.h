// Agreement of all ranks of an engine before an optimizer step, on their devices: each device
// completes the rank's vote, the votes of all are gathered, and every device makes the same
// decision. On a GPU nothing waits for that: the host uploads a request for each step through a
// pinned ring and reads the decision one step later, so at most two steps are in flight. On the
// host everything is complete when the calls return. For each step call begin(), agree() and later
// read(); after a preliminary vote, then begin_final(), agree() and read(). One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/wire/codec.h"
#include "optim/device_kernels.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/memory_requests.h"
#include "zero/state/step_scalars.h"

namespace zero::detail {

class Stepper;

// A step given to the device; shared by the ticket and the engine.
struct PendingStep {
  std::int64_t number = 0;
  Stepper* unresolved = nullptr;  // null once the decision has been read
  std::string values = "";        // given by this rank to optimizer groups, one per line
  optim::StepDecision decision = {};
  // Relative errors of this rank's encodings: of all, and of the flat unit with the largest.
  double compression_error = 0, largest_error = 0;
  int largest_error_unit = -1;
};

// Factors of every candidate and parameter group, in the layout of DeviceUpdate::factors.
using StepFactors = std::vector<float>;

class StepAgreement {
 public:
  // `check` throws if a failure affects the outcome of a step. All must outlive this object;
  // allocate() also takes the memory of the scalars.
  StepAgreement(RuntimeCore& runtime, Ranks& ranks, const EnginePlan& plan, StepScalars& scalars,
                std::function<void()> check);
  StepAgreement(const StepAgreement&) = delete;

  // Adds the bytes to the ledger's plan; allocate() then takes the memory. The votes that ranks
  // exchange are in the given arena.
  void plan(Ledger& ledger) const;
  std::int64_t exchanged_bytes() const { return exchanged_requests_.bytes(); }
  void allocate(Arena& exchanged, Ledger& ledger);

  // The step's number selects its ring slot; the step before last must be resolved. Between begin()
  // and agree() the norms of gradients are added to the scalars' vote. `losses`: the host's, one
  // per micro step, if ranks list losses (EnginePlan::losses_per_rank()).
  void begin(const optim::StepRequest& request, std::shared_ptr<const StepFactors> factors,
             const std::vector<double>& losses);
  void agree();
  // Begins the final vote after the decision on a preliminary vote has been read. Norms of changed
  // gradients must be added again, from zero.
  void begin_final(const optim::StepRequest& request, bool gradients_changed);

  const float* factors() const;
  int groups() const { return groups_; }
  // Decision and factors for host work that comes after the agreement. The decision is kept until
  // the step after next.
  const optim::StepDecision* decision_on_host() const {
    return pinned_decisions_[step_ % ring_slots];
  }
  std::shared_ptr<const StepFactors> factors_on_host() const { return factors_; }

  // Waits for the decision on a step. Steps must be read in order.
  void read(PendingStep& step);

 private:
  static constexpr int ring_slots = 2;

  void request_memory();
  std::int64_t factor_bytes() const;
  // Bytes that a step uploads: the request, the factors, then the host's losses.
  std::int64_t upload_bytes() const;
  const optim::StepRequest* uploaded() const;
  void upload(const optim::StepRequest& request);
  void queue_agreement();
  void queue_exchange();
  void read_errors(PendingStep& step);
  void queue(std::function<void(Stream)> work) { runtime_.compute().enqueue(std::move(work)); }

  RuntimeCore& runtime_;
  Ranks& ranks_;
  StepScalars& scalars_;
  const int rank_count_;
  std::function<void()> check_;
  int groups_;

  MemoryRequests device_requests_, exchanged_requests_, pinned_requests_;
  Arena device_arena_, pinned_arena_;
  std::byte* uploads_[ring_slots] = {};         // in device memory
  std::byte* pinned_uploads_[ring_slots] = {};  // in host memory
  optim::StepDecision* pinned_decisions_[ring_slots] = {};
  optim::StepVote* votes_ = nullptr;  // per rank
  double* losses_ = nullptr;          // of all ranks, if listed
  std::vector<double> losses_of_host_;
  // The scalars' error sums as of the steps in flight, and as of the last step read.
  comm::wire::ErrorSums* pinned_errors_[ring_slots] = {};
  std::vector<comm::wire::ErrorSums> read_errors_;
  std::int64_t step_ = 0;     // the latest given to the device
  bool preliminary_ = false;  // whether the latest request is
  std::shared_ptr<const StepFactors> factors_;
  std::unique_ptr<Event> decided_[ring_slots];
};

}  // namespace zero::detail
