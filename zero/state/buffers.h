// Untrained state of units (UnitSpec::buffer): memory of this rank in an arena of its own, unused
// by collectives and plans.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/base/error.h"
#include "zero/plan/model.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/memory_requests.h"

namespace zero::detail {

class Buffers {
 public:
  Buffers(RuntimeCore& runtime, const Model& model)
      : runtime_(runtime), model_(model), addresses_(model.buffers.size()) {
    for (std::size_t b = 0; b < addresses_.size(); ++b)
      requests_.add(MemoryCategory::buffers,
                    model.buffers[b].elements * size_of(model.buffers[b].dtype), addresses_[b]);
  }

  // Adds the bytes to the ledger's plan. allocate() then takes them, on the rank's device, and
  // fills them with zeros.
  void plan(Ledger& ledger) const { requests_.plan(ledger); }
  void allocate(Ledger& ledger) {
    if (requests_.bytes() == 0) return;
    arena_ = runtime_.device().reserve(requests_.bytes(), Arena::Sharing::private_memory,
                                       "the units' buffers");
    requests_.take(arena_, ledger);
    queue_zeros(runtime_, arena_.data(), arena_.size());
    runtime_.compute().synchronize();
  }

  // Returns a buffer's address in device memory. Throws UsageError for a dtype other than the
  // declared one, and for an unknown name.
  void* address(std::string_view name, DType dtype) const {
    const auto found = std::ranges::find(model_.buffers, name, &BufferDeclaration::name);
    if (found == model_.buffers.end())
      throw UsageError("no buffer is named \"" + std::string(name) + "\"" +
                       hint_among(model_.buffers, name));
    if (found->dtype != dtype)
      throw UsageError("buffer " + found->name + " is " + name_of(found->dtype) + ", but " +
                       name_of(dtype) + " was asked for");
    return addresses_[found - model_.buffers.begin()];
  }

  // Copies a whole buffer, by index into Model::buffers, to host memory, between steps.
  std::vector<std::byte> read(int index) const {
    std::vector<std::byte> values(declared(index).elements * size_of(declared(index).dtype));
    copy_and_wait(runtime_, values.data(), addresses_[index], std::ssize(values));
    return values;
  }
  // Overwrites elements from `first` on.
  void write(int index, std::int64_t first, std::span<const std::byte> bytes) {
    copy_and_wait(runtime_, addresses_[index] + first * size_of(declared(index).dtype),
                  bytes.data(), std::ssize(bytes));
  }

 private:
  const BufferDeclaration& declared(int index) const { return model_.buffers[index]; }

  RuntimeCore& runtime_;
  const Model& model_;
  std::vector<std::byte*> addresses_;  // one per buffer
  MemoryRequests requests_;
  Arena arena_;
};

}  // namespace zero::detail
