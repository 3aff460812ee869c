// What units keep and do not train (UnitSpec::buffer): memory of this rank in an arena of its own,
// which no collective and no plan uses.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "zero/plan/model.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/memory_requests.h"

namespace zero::detail {

class Buffers {
 public:
  Buffers(RuntimeCore& runtime, const Model& model);

  // Enters the bytes into the ledger's plan. Then allocate() takes them, on the rank's device, and
  // fills them with zeros.
  void plan(Ledger& ledger) const { requests_.plan(ledger); }
  void allocate(Ledger& ledger);

  // A buffer's place in the device's memory. Throws UsageError for another dtype than the declared
  // one, and for a name that no buffer has.
  void* address(std::string_view name, DType dtype) const;

  // By index into Model::buffers. Copies all of one buffer to host memory, between steps.
  std::vector<std::byte> read(int index) const;
  // Replaces elements from `first` on.
  void write(int index, std::int64_t first, std::span<const std::byte> bytes);

 private:
  const BufferDeclaration& declared(int index) const { return model_.buffers[index]; }

  RuntimeCore& runtime_;
  const Model& model_;
  std::vector<std::byte*> addresses_;  // by index
  MemoryRequests requests_;
  Arena arena_;
};

}  // namespace zero::detail
