// The rows of large sections of the config, each in a file of its own.
#pragma once

#include "zero/plan/key_rows.h"

namespace zero::config_keys {

void add_optimizer(RowList& rows);
void add_scheduler(RowList& rows);
// `zero_core`.
void add_core(RowList& rows);

}  // namespace zero::config_keys
