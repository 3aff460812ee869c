// State that every rank has whole, in an arena of its own: untrained state of units
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
#include "zero/plan/model.h"
#include "zero/plan/update_groups.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/memory_requests.h"

namespace zero::detail {

class Buffers {
 public:
  // All must outlive it.
  Buffers(RuntimeCore& runtime, const Model& model, const UpdateGroups& updates)
      : runtime_(runtime), model_(model), all_(model.buffers) {
    for (int p = 0; p < std::ssize(model.params); ++p)
      if (updates.factors(p) && model.params[p].elements > 0) add_moments(p);
    addresses_.resize(all_.size());
    for (std::size_t b = 0; b < all_.size(); ++b)
      requests_.add(
          b < model.buffers.size() ? MemoryCategory::buffers : MemoryCategory::optimizer_state,
          all_[b].elements * size_of(all_[b].dtype), addresses_[b]);
  }

  // Those of the model, and after them row_var and col_var of each parameter of factored_params().
  const std::vector<BufferDeclaration>& all() const { return all_; }
  const std::vector<int>& factored_params() const { return factored_params_; }
  // The parameter of a moment's buffer; -1 for a buffer of the model.
  int moment_of(int index) const {
    const int moment = index - static_cast<int>(model_.buffers.size());
    return moment < 0 ? -1 : factored_params_[moment / 2];
  }
  // Row and column moments of factored_params()[number], in device memory.
  std::pair<float*, float*> moments(int number) const {
    const std::size_t at = model_.buffers.size() + 2 * static_cast<std::size_t>(number);
    return {reinterpret_cast<float*>(addresses_[at]), reinterpret_cast<float*>(addresses_[at + 1])};
  }

  // Adds the bytes to the ledger's plan. allocate() then takes them, on the rank's device, and
  // fills them with zeros.
  void plan(Ledger& ledger) const { requests_.plan(ledger); }
  void allocate(Ledger& ledger) {
    if (requests_.bytes() == 0) return;
    arena_ = runtime_.device().reserve(requests_.bytes(), Arena::Sharing::private_memory,
                                       "the units' buffers and moments of rows and columns");
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

  // Copies a whole buffer, by index into all(), to host memory, between steps.
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
  const BufferDeclaration& declared(int index) const { return all_[index]; }

  void add_moments(int param) {
    const ParamDeclaration& matrix = model_.params[param];
    const auto add = [&](const char* name, std::ptrdiff_t summed) {
      BufferDeclaration moments{name + (" of " + matrix.name), matrix.shape, 0, DType::fp32};
      moments.elements = matrix.elements / *(moments.shape.end() - summed);
      moments.shape.erase(moments.shape.end() - summed);
      all_.push_back(std::move(moments));
    };
    add("row_var", 1);
    add("col_var", 2);
    factored_params_.push_back(param);
  }

  RuntimeCore& runtime_;
  const Model& model_;
  std::vector<BufferDeclaration> all_;
  std::vector<int> factored_params_;
  std::vector<std::byte*> addresses_;  // one per buffer
  MemoryRequests requests_;
  Arena arena_;
};

}  // namespace zero::detail
