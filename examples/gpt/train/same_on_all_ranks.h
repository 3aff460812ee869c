// Checks that every rank of train_gpt has the same inputs. Each call is collective and throws
// DisagreementError with all differences. Host names, --threads, --recompute, --report, the paths
// of --deepspeed_config, --init, --data, --log-json and --product-file may differ, since the
// contents of the files are compared.
#pragma once

#include "examples/gpt/train/options.h"
#include "examples/gpt/train/task.h"
#include "zero/zero.h"

namespace gpt {

// Must be called before the options are used.
void agree_on_options(zero::Runtime& runtime, const Options& options);

// Compares model, data and matrix library, after the engine has compared config and shapes. For
// large data files, the length and blocks spread over the whole file are compared. A difference of
// matrix library or instruction set is an error with zero_core.deterministic, otherwise a notice.
void agree_on_inputs(zero::Runtime& runtime, const zero::Engine& engine, const Task& task);

}  // namespace gpt
