#include "zero/state/buffers.h"

#include <algorithm>

#include "zero/base/error.h"
#include "zero/state/state_store.h"

namespace zero::detail {

Buffers::Buffers(RuntimeCore& runtime, const Model& model)
    : runtime_(runtime), model_(model), addresses_(model.buffers.size()) {
  for (std::size_t b = 0; b < addresses_.size(); ++b)
    requests_.add(MemoryCategory::buffers,
                  model.buffers[b].elements * size_of(model.buffers[b].dtype), addresses_[b]);
}

void Buffers::allocate(Ledger& ledger) {
  if (requests_.bytes() == 0) return;
  arena_ = runtime_.device().reserve(requests_.bytes(), Arena::Sharing::private_memory,
                                     "the units' buffers");
  requests_.take(arena_, ledger);
  queue_zeros(runtime_, arena_.data(), arena_.size());
  runtime_.compute().synchronize();
}

void* Buffers::address(std::string_view name, DType dtype) const {
  const auto found = std::ranges::find(model_.buffers, name, &BufferDeclaration::name);
  if (found == model_.buffers.end())
    throw UsageError("no buffer is named \"" + std::string(name) + "\"" +
                     hint_among(model_.buffers, name));
  if (found->dtype != dtype)
    throw UsageError("buffer " + found->name + " is " + name_of(found->dtype) + ", but " +
                     name_of(dtype) + " was asked for");
  return addresses_[found - model_.buffers.begin()];
}

std::vector<std::byte> Buffers::read(int index) const {
  std::vector<std::byte> values(declared(index).elements * size_of(declared(index).dtype));
  copy_and_wait(runtime_, values.data(), addresses_[index], std::ssize(values));
  return values;
}

void Buffers::write(int index, std::int64_t first, std::span<const std::byte> bytes) {
  copy_and_wait(runtime_, addresses_[index] + first * size_of(declared(index).dtype), bytes.data(),
                std::ssize(bytes));
}

}  // namespace zero::detail
