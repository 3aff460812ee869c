#include "pytorch/initial_values.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "pytorch/managed_parameter.h"
#include "pytorch/tensor_device.h"

namespace zero::pytorch {

// Ranks agree on the pieces even if the tensor is on different devices.
template <class Use>
void InitialValues::in_pieces(const at::Tensor& flat, const Use& use) {
  const std::int64_t most = piece_bytes_ / flat.element_size();
  for (std::int64_t begin = 0; begin < flat.numel(); begin += most) {
    const std::int64_t count = std::min(most, flat.numel() - begin);
    const at::Tensor piece = flat.narrow(0, begin, count);
    if (flat.device() != staged_) {
      use(piece, piece, begin);
      continue;
    }
    if (!buffer_.defined())
      buffer_ =
          at::empty({piece_bytes_}, at::TensorOptions(at::kByte).pinned_memory(staged_->is_cuda()));
    use(piece, tensor_at(buffer_.data_ptr(), {count}, flat.scalar_type(), at::kCPU), begin);
  }
}

void InitialValues::broadcast(Runtime& runtime, const at::Tensor& tensor) {
  if (runtime.size() == 1 || tensor.numel() == 0) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor bytes = tensor_at(
      tensor.data_ptr(), {static_cast<std::int64_t>(tensor.nbytes())}, at::kByte, tensor.device());
  in_pieces(bytes, [&](const at::Tensor& piece, const at::Tensor& on_host, std::int64_t) {
    if (runtime.is_root() && !on_host.is_same(piece)) on_host.copy_(piece);
    runtime.broadcast({static_cast<std::byte*>(on_host.data_ptr()), on_host.nbytes()});
    if (!runtime.is_root() && !on_host.is_same(piece)) piece.copy_(on_host);
  });
}

void InitialValues::read(const at::Tensor& tensor, std::int64_t begin, std::span<float> values) {
  const c10::NoGradGuard no_grad;
  const auto count = static_cast<std::int64_t>(values.size());
  const at::Tensor result = tensor_at(values.data(), {count}, at::kFloat, at::kCPU);
  const at::Tensor flat = tensor.view({-1});
  const at::Tensor part =
      (is_byte(flat.scalar_type()) ? flat.view(at::kByte) : flat).narrow(0, begin, count);
  in_pieces(part, [&](const at::Tensor& piece, const at::Tensor& on_host, std::int64_t from) {
    if (!on_host.is_same(piece)) on_host.copy_(piece);
    result.narrow(0, from, piece.numel()).copy_(on_host);
  });
}

void initialize_rest_of(Engine& engine, const std::map<std::string_view, const at::Tensor*>& values,
                        at::Device device) {
  InitialValues reader(device.is_cpu() ? std::nullopt : std::optional(device));
  engine.initialize_rest([&](ParamShard shard) {
    const auto found = values.find(shard.name);
    if (found == values.end())
      std::ranges::fill(shard.values, 0.0F);
    else
      reader.read(*found->second, shard.begin, shard.values);
  });
}

}  // namespace zero::pytorch
