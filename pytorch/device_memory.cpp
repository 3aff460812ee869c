#include "pytorch/device_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdio>
#include <vector>

#include "zero/base/notice.h"

namespace zero::pytorch {

namespace {

c10::DeviceAllocator* allocator_of(at::Device device) {
  if (device.is_cpu()) return nullptr;
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
}

std::string gib(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

}  // namespace

void empty_cache(at::Device device) {
  if (c10::DeviceAllocator* allocator = allocator_of(device)) allocator->emptyCache();
}

std::optional<std::int64_t> free_bytes(at::Device device) {
  c10::DeviceAllocator* allocator = allocator_of(device);
  if (allocator == nullptr) return std::nullopt;
  return static_cast<std::int64_t>(allocator->getMemoryInfo(device.index()).first);
}

std::int64_t planned_bytes(const ModelSpec& spec, const Config& config, const Runtime& runtime) {
  std::int64_t bytes = 0;
  for (const MemoryUse& use :
       plan_memory(spec, config, runtime.size(), true, runtime.rank()).memory)
    bytes += use.planned;
  return bytes;
}

void make_room(at::Device device, std::span<at::Tensor* const> tensors,
               const std::function<std::int64_t()>& engine_bytes, Runtime& runtime) {
  if (device.is_cpu()) return;
  empty_cache(device);
  std::vector<at::Tensor*> there;
  std::int64_t bytes = 0;
  for (at::Tensor* tensor : tensors) {
    if (tensor->device() != device) continue;
    there.push_back(tensor);
    bytes += static_cast<std::int64_t>(tensor->nbytes());
  }
  const std::int64_t engine = there.empty() ? 0 : engine_bytes();
  const std::int64_t free = free_bytes(device).value_or(0);
  std::int64_t lacking = free < engine ? 1 : 0;  // ranks
  runtime.sum(std::span(&lacking, 1));
  if (!there.empty() && runtime.is_root())
    warn_once("the model's " + gib(bytes) + " on the GPU " +
              (lacking == 0 ? "stay there" : "wait in the host memory of each rank") +
              " until its engine has them, which takes " + gib(engine) + " of " + gib(free) +
              " free there" +
              (lacking == 0 ? "" : "; construct the model on the CPU or inside zero.Init"));
  if (lacking == 0) return;
  for (at::Tensor* tensor : there) *tensor = tensor->to(at::kCPU);
  empty_cache(device);
}

}  // namespace zero::pytorch
