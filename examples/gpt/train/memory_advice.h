// Advice for a run that finds too little memory at start.
#pragma once

#include "examples/gpt/train/task.h"
#include "zero/zero.h"

namespace gpt {

// Returns planned against available memory, and the cheapest changes that would fit. Local.
std::string memory_advice(const zero::Runtime& runtime, const Task& task);

}  // namespace gpt
