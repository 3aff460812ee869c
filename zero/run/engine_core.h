// The engine behind the public handles: owns what is trained, the memory for it and the parts that
// work on it, each in files of its own name. engine.cpp says which part serves which public call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zero/checkpoint/checkpoints.h"
#include "zero/run/call_guard.h"
#include "zero/run/engine_memory.h"
#include "zero/run/hidden_memory.h"
#include "zero/run/offload_streams.h"
#include "zero/run/order_learner.h"
#include "zero/run/plan_walker.h"
#include "zero/run/scopes.h"
#include "zero/run/step_clock.h"
#include "zero/run/stepper.h"
#include "zero/run/transfers.h"
#include "zero/run/updates.h"
#include "zero/run/weights.h"
#include "zero/state/train_state.h"
#include "zero/zero.h"

namespace zero::detail {

// What is trained, as checkpoints save and load it.
std::unique_ptr<checkpoint::Snapshot> snapshot_of(TrainState& train);

class EngineCore {
 public:
  EngineCore(RuntimeCore& runtime, const ModelSpec& spec, Config config);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;

  // For handles, which see in it that the engine has ended.
  EngineLink link() const { return EngineLink(self_); }

  TrainState& train() { return train_; }
  CallGuard& guard() { return guard_; }
  Scopes& scopes() { return scopes_; }
  Stepper& stepper() { return stepper_; }
  StepAgreement& agreement() { return agreement_; }
  Transfers& transfers() { return transfers_; }
  Weights& weights() { return weights_; }
  Checkpoints& checkpoints() { return checkpoints_; }
  // The handles that Engine::units() shows.
  std::vector<Unit>& units() { return units_; }

  // What a collective call between steps needs, each more than the one before; they throw as
  // CallGuard::require(). That every rank knows which steps were applied; that no work is in
  // flight; that no micro step of the next step has been run; that a pending save is finished.
  // Where the order of calls is free, a forward pass may be under way in the first two.
  void require_settled(const char* call) {
    scopes_.come_to_rest();
    if (guard_.phase() == Phase::micro_step)
      guard_.require(Phase::micro_step, call);
    else
      guard_.require(Phase::between_steps, call);
    stepper_.settle();
  }
  void require_idle(const char* call) {
    require_settled(call);
    finish_work();
  }
  void require_step_border(const char* call) {
    scopes_.refuse_among_micro_steps(call);
    require_idle(call);
  }
  // Before values change among micro steps, where the order of calls is free and nothing has been
  // read ahead of the update.
  void require_changeable(const char* call) {
    const bool free =
        train_.model.any_order && !train_.offloads_to_file() && !train_.offloads_beside_gpu();
    if (!free) return require_no_save(call);
    require_idle(call);
    if (scopes_.inside_any())
      throw UsageError(
          std::string(call) +
          " was called inside of a forward or backward pass; it belongs before or after");
    checkpoints_.finish_pending();
  }
  void require_no_save(const char* call) {
    require_step_border(call);
    checkpoints_.finish_pending();
  }
  // Throws NumericError, and the engine has ended, where replicated parameters are not alike.
  void verify_before_save();

  // Waits for all work in flight.
  void finish_work() {
    train_.runtime.communication().synchronize();
    train_.runtime.compute().synchronize();
    offload_.finish();
  }

  // engine_report.cpp. Every rank's figures, on every rank.
  EngineReport report();

 private:
  std::vector<std::int64_t> report_words();
  // Who carries out the instructions of each stream.
  PlanWalker::Lanes plan_lanes();
  void share_memory();
  void notice_settings() const;
  // What a hybrid strategy, and what wire formats would save where stage 3 runs on several nodes:
  // one sentence on rank 0; nothing where the config has chosen, where one group per node cannot be
  // made, or where nothing would be saved.
  std::string hybrid_advice() const;

  const std::shared_ptr<EngineCore*> self_ = std::make_shared<EngineCore*>(this);
  const int exceptions_at_start_;
  TrainState train_;
  StepClock clock_;
  CallGuard guard_;
  HiddenMemory hidden_;
  StepAgreement agreement_;
  Updates updates_;
  EngineMemory memory_;
  Checkpoints checkpoints_;
  Transfers transfers_;
  OffloadStreams offload_;
  PlanWalker walker_;
  OrderLearner learner_;
  Scopes scopes_;
  Stepper stepper_;
  Weights weights_;
  std::vector<Unit> units_;
};

}  // namespace zero::detail
