// What every rank of train_gpt must be given alike. Each call is collective and throws
// DisagreementError with all that differs. Host names, --threads, --recompute, --report, the paths
// of --deepspeed_config, --init, --data, --log-json and --product-file may differ: what the files
// hold is compared.
#pragma once

#include "examples/gpt/options.h"
#include "examples/gpt/task.h"
#include "zero/zero.h"

namespace gpt {

// Before anything else is done with the options.
void agree_on_options(zero::Runtime& runtime, const Options& options);

// Model, data and matrix library, once the engine has compared config and shapes. Of large data
// files, the length and blocks spread over the whole are compared. Another matrix library or
// instruction set is an error where zero_core.deterministic is set, else a notice.
void agree_on_inputs(zero::Runtime& runtime, const zero::Engine& engine, const Task& task);

}  // namespace gpt
