// State that every rank has whole, in a separate arena: untrained state of units
// (UnitSpec::buffer), unused by collectives and plans, and after that Adafactor's factored moments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zero/base/error.h"
#include "zero/plan/kept_buffers.h"
#include "zero/plan/model.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/memory_requests.h"

namespace zero::detail {

class Buffers {
 public:
  // Both must outlive this object.
  Buffers(RuntimeCore& runtime, const KeptBuffers& kept)
      : runtime_(runtime), kept_(kept), addresses_(kept.all.size()) {
    for (int b = 0; b < std::ssize(kept.all); ++b)
      requests_.add(b < kept.of_model ? MemoryCategory::buffers : MemoryCategory::optimizer_state,
                    bytes_of(b), addresses_[b]);
  }

  // Row and column moments of KeptBuffers::factored[number], in device memory.
  std::pair<float*, float*> moments(int number) const {
    const int at = kept_.of_model + 2 * number;
    return {reinterpret_cast<float*>(addresses_[at]), reinterpret_cast<float*>(addresses_[at + 1])};
  }

  // Adds the bytes to the ledger's plan. allocate() then takes memory on the rank's device and
  // fills it with zeros.
  void plan(Ledger& ledger) const { requests_.plan(ledger); }
  void allocate(Ledger& ledger) {
    if (requests_.bytes() == 0) return;
    arena_ = runtime_.device().reserve(requests_.bytes(), Arena::Sharing::private_memory,
                                       "the units' buffers and moments of rows and columns");
    requests_.take(arena_, ledger);
    queue_zeros(runtime_, arena_.data(), arena_.size());
    runtime_.compute().synchronize();
  }

  // Returns a buffer's address in device memory. Throws UsageError for another dtype than declared,
  // and for an unknown name.
  void* address(std::string_view name, DType dtype) const {
    const int index = find(name);
    const std::string& own = declared(index).dtype;
    if (own != safetensors_name(dtype))
      throw UsageError("buffer " + declared(index).name + " is " +
                       (dtype_named(own) ? name_of(*dtype_named(own)) : own) + ", but " +
                       name_of(dtype) + " was asked for");
    return addresses_[index];
  }
  // Throws UsageError for an unknown name.
  std::span<std::byte> bytes(std::string_view name) const {
    const int index = find(name);
    return {addresses_[index], static_cast<std::size_t>(bytes_of(index))};
  }

  // Copies a whole buffer, by index into KeptBuffers::all, to host memory, between steps.
  std::vector<std::byte> read(int index) const {
    std::vector<std::byte> values(bytes_of(index));
    copy_and_wait(runtime_, values.data(), addresses_[index], std::ssize(values));
    return values;
  }
  // Overwrites elements from `first` on.
  void write(int index, std::int64_t first, std::span<const std::byte> bytes) {
    copy_and_wait(runtime_, addresses_[index] + first * declared(index).width(), bytes.data(),
                  std::ssize(bytes));
  }

 private:
  const BufferDeclaration& declared(int index) const { return kept_.all[index]; }
  std::int64_t bytes_of(int index) const {
    return declared(index).elements * declared(index).width();
  }
  int find(std::string_view name) const {
    const auto of_model = std::span(kept_.all).first(kept_.of_model);
    const auto found = std::ranges::find(of_model, name, &BufferDeclaration::name);
    if (found == of_model.end())
      throw UsageError("no buffer is named \"" + std::string(name) + "\"" +
                       hint_among(of_model, name));
    return static_cast<int>(found - of_model.begin());
  }

  RuntimeCore& runtime_;
  const KeptBuffers& kept_;
  std::vector<std::byte*> addresses_;  // per buffer
  MemoryRequests requests_;
  Arena arena_;
};

}  // namespace zero::detail
