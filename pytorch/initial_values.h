// Initial values on their way into an engine. Those on a GPU pass piece by piece through one
// page-locked buffer, so that no rank needs host memory for a whole model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "zero/zero.h"

namespace zero::pytorch {

class InitialValues {
 public:
  // `staged`: the device whose tensors pass through the buffer, if any.
  explicit InitialValues(std::optional<at::Device> staged,
                         std::int64_t piece_bytes = std::int64_t{16} << 20)
      : staged_(staged), piece_bytes_(piece_bytes) {}

  // Sets a contiguous tensor, on that device or the CPU, to rank 0's values. Collective.
  void broadcast(Runtime& runtime, const at::Tensor& tensor);
  // Copies elements of a contiguous tensor, from `begin` on, as fp32.
  void read(const at::Tensor& tensor, std::int64_t begin, std::span<float> values);

 private:
  // Calls use(piece, copy, begin) for all pieces of the flat tensor. The copy is a part of the
  // buffer, or the piece itself if the buffer is not needed.
  template <class Use>
  void in_pieces(const at::Tensor& flat, const Use& use);

  std::optional<at::Device> staged_;
  std::int64_t piece_bytes_;
  at::Tensor buffer_;
};

// Sets the parameters without values in the engine to these, by name, or to zero. `device`: that of
// the values that are not on the CPU. Collective.
void initialize_rest_of(Engine& engine, const std::map<std::string_view, const at::Tensor*>& values,
                        at::Device device);

}  // namespace zero::pytorch
