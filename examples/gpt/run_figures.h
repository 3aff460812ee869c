// What a run measured, as the report wants it: per rank, per step, without the steps that warm up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/gpt/training_record.h"
#include "tools/report/comparison.h"
#include "zero/zero.h"

namespace gpt {

struct MeasuredRun {
  std::string name;
  std::vector<TrainingRecord> records;  // of all steps
  std::int64_t warm_up = 0;             // steps that the times leave out
  zero::EngineReport after_warm_up, after_all;
  std::uint64_t digest = 0;
};

zero::report::Variant figures_of(const MeasuredRun& run);

}  // namespace gpt
