// The engine behind the public handles: owns the model in training, the memory, and the parts of
// the engine, each in files of the same name. engine.cpp maps public calls to parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zero/checkpoint/checkpoints.h"
#include "zero/engine/engine_memory.h"
#include "zero/engine/trace_file.h"
#include "zero/engine/trace_request.h"
#include "zero/pass/accumulation.h"
#include "zero/pass/evaluations.h"
#include "zero/pass/hidden_memory.h"
#include "zero/pass/offload_streams.h"
#include "zero/pass/passes.h"
#include "zero/pass/plan_walker.h"
#include "zero/pass/scopes.h"
#include "zero/pass/step_clock.h"
#include "zero/pass/transfers.h"
#include "zero/runtime/call_guard.h"
#include "zero/state/train_state.h"
#include "zero/step/stepper.h"
#include "zero/step/updates.h"
#include "zero/weights/weights.h"
#include "zero/zero.h"

namespace zero::detail {

class EngineCore {
 public:
  EngineCore(RuntimeCore& runtime, const ModelSpec& spec, Config config);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;

  // Lets handles detect the end of the engine.
  EngineLink link() const { return EngineLink(self_); }

  TrainState& train() { return train_; }
  CallGuard& guard() { return guard_; }
  const Recomputation& recomputation() const { return passes_.recomputation; }
  Accumulation& accumulation() { return accumulation_; }
  Evaluations& evaluations() { return evaluations_; }
  Scopes& scopes() { return scopes_; }
  Stepper& stepper() { return stepper_; }
  const StepScalars& scalars() const { return scalars_; }
  Transfers& transfers() { return transfers_; }
  Weights& weights() { return weights_; }
  Checkpoints& checkpoints() { return checkpoints_; }
  // The handles that Engine::units() returns.
  std::vector<Unit>& units() { return units_; }

  // Checks a collective call by its row in the table of runtime/calls.h, and waits for the work
  // that the row names. Throws like CallGuard::require().
  void begin_call(Call call);
  // Does the same without an end of the open micro step, for rows that are valid inside.
  void begin_call_in_phase(Call call);
  // Engine::take_memory().
  void take_memory() { memory_.take(); }
  // Throws NumericError, and ends the engine, if replicated parameters differ.
  void verify_before_save();

  // Waits for all work in flight.
  void finish_work() {
    train_.runtime.communication().synchronize();
    train_.runtime.compute().synchronize();
    offload_.finish();
  }

  // Returns every rank's figures, on every rank; rank_report() only this rank's. In
  // engine_report.cpp.
  EngineReport report();
  RankReport rank_report();
  // Engine::write_trace(). In engine_trace.cpp.
  std::string write_trace(const std::string& file);
  // After the first step, on rank 0: names the keys that act only through a class that the program
  // has not made.
  void name_idle_keys();
  // The program's thread was in a call for a save since `begin`, in steady_nanoseconds().
  void note_save(std::int64_t begin);

 private:
  std::vector<std::int64_t> report_words();
  // Collective if the config requests a trace.
  void start_tracing();
  RankTrace own_trace();
  std::string trace_summary(const std::string& file, const TraceSummary& own);
  void write_own_trace(const char* reason) noexcept;
  // Maps the instructions of each stream to the parts that execute them.
  PlanWalker::Lanes plan_lanes();
  // Waits, or makes the stream wait, until the pending save has copied what the instruction
  // changes.
  void follow_save(const Instruction& instruction, ExecutionStream& stream);
  void share_memory();
  // Rank 0 prints what the config has to say, and what dump_state requests.
  void print_settings();
  void notice_settings() const;
  // Writes the trace that the config requests, if the program has not.
  void write_last_trace() noexcept;

  const std::shared_ptr<EngineCore*> self_ = std::make_shared<EngineCore*>(this);
  const int exceptions_at_start_;
  const std::vector<MemoryRoom> rooms_;  // read before the agreement of train_
  TrainState train_;
  StepClock clock_;
  CallGuard guard_;
  HiddenMemory hidden_;
  StepScalars scalars_;
  StepAgreement agreement_;
  Updates updates_;
  EngineMemory memory_;
  Checkpoints checkpoints_;
  Transfers transfers_;
  OffloadStreams offload_;
  PlanWalker walker_;
  Passes passes_;
  Accumulation accumulation_;
  Evaluations evaluations_;
  Scopes scopes_;
  Stepper stepper_;
  Weights weights_;
  std::vector<Unit> units_;
  std::vector<std::int64_t> clocks_ahead_;  // per rank, as in RankTrace; empty: not compared
  std::unique_ptr<TraceRequests> requests_;
  bool trace_written_ = false, idle_keys_named_ = false;
};

}  // namespace zero::detail
