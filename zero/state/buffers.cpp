#include "zero/state/buffers.h"

#include <algorithm>

#include "zero/base/error.h"
#include "zero/state/state_store.h"

namespace zero::detail {

std::int64_t Buffers::bytes() const {
  std::int64_t total = 0;
  for (const BufferDeclaration& buffer : model_.buffers)
    total += Arena::rounded(buffer.elements * size_of(buffer.dtype));
  return total;
}

void Buffers::plan(Ledger& ledger) const {
  ledger.plan(MemoryCategory::buffers, bytes());
}

void Buffers::allocate(Ledger& ledger) {
  if (bytes() > 0)
    arena_ =
        runtime_.device().reserve(bytes(), Arena::Sharing::private_memory, "the units' buffers");
  ledger.take(MemoryCategory::buffers, bytes());
  for (const BufferDeclaration& buffer : model_.buffers)
    addresses_.push_back(
        static_cast<std::byte*>(arena_.take(buffer.elements * size_of(buffer.dtype))));
  if (arena_.size() == 0) return;
  runtime_.compute().enqueue(
      [this](Stream stream) { runtime_.device().fill_zero(arena_.data(), arena_.size(), stream); });
  runtime_.compute().synchronize();
}

void Buffers::give_back(Ledger& ledger) const {
  ledger.give_back(MemoryCategory::buffers, bytes());
  ledger.plan(MemoryCategory::buffers, -bytes());
}

int Buffers::find(std::string_view name) const {
  const auto found = std::find_if(model_.buffers.begin(), model_.buffers.end(),
                                  [&](const auto& buffer) { return buffer.name == name; });
  return found == model_.buffers.end() ? -1 : static_cast<int>(found - model_.buffers.begin());
}

void* Buffers::address(std::string_view name, DType dtype) const {
  const int index = find(name);
  if (index < 0) {
    std::vector<std::string> names;
    for (const BufferDeclaration& buffer : model_.buffers) names.push_back(buffer.name);
    throw UsageError("no buffer is named \"" + std::string(name) + "\"" + hint_for(name, names));
  }
  if (declared(index).dtype != dtype)
    throw UsageError("buffer " + declared(index).name + " is " + name_of(declared(index).dtype) +
                     ", but " + name_of(dtype) + " was asked for");
  return addresses_[index];
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
