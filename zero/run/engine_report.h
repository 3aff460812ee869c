// What an engine says of itself (Engine::report): every rank's figures, on every rank.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "zero/report.h"
#include "zero/run/step_clock.h"
#include "zero/state/train_state.h"

namespace zero::detail {

struct ReportSources {
  TrainState& train;
  const StepClock& clock;
  const comm::Traffic& traffic;
  std::int64_t baseline_bytes;  // of the process before the engine
};

// Collective, with no work in flight.
EngineReport gather_report(const ReportSources& sources);

}  // namespace zero::detail
