// Memory of a GPU that torch manages, at the start of an engine.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "zero/zero.h"

namespace zero::pytorch {

// Returns torch's freed memory of the device to the device. Nothing for a CPU.
void empty_cache(at::Device device);
// Returns the free bytes of the device, without torch's freed memory; nothing for a CPU.
std::optional<std::int64_t> free_bytes(at::Device device);
// Returns the bytes on the device of this rank's engine.
std::int64_t planned_bytes(const ModelSpec& spec, const Config& config, const Runtime& runtime);

// Call before an engine takes its memory on the device: returns torch's freed memory, and copies
// the tensors there to the host if the engine's memory does not fit next to them on every rank.
// Rank 0 says what happens. Collective; nothing for a CPU.
void make_room(at::Device device, std::span<at::Tensor* const> tensors,
               const std::function<std::int64_t()>& engine_bytes, Runtime& runtime);

}  // namespace zero::pytorch
