#include "zero/run/strict.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "zero/base/error.h"

// Of AddressSanitizer's runtime: null in a process that is linked without it.
extern "C" {
void __asan_poison_memory_region(const volatile void*, std::size_t) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void*, std::size_t) __attribute__((weak));
}

namespace zero::detail {

bool strict_mode() {
  const char* text = std::getenv("ZERO_STRICT");
  if (text == nullptr || *text == '\0') return ZERO_STRICT_DEFAULT != 0;
  const std::string value = text;
  if (value != "0" && value != "1")
    throw ConfigError("ZERO_STRICT is \"" + value + "\"; expected 0 or 1");
  return value == "1";
}

bool sanitizer_watches() noexcept {
  return __asan_poison_memory_region != nullptr;
}

namespace {

// Whether the sanitizer does it.
bool poison(std::byte* data, std::int64_t bytes) noexcept {
  if (!sanitizer_watches()) return false;
  __asan_poison_memory_region(data, static_cast<std::size_t>(bytes));
  return true;
}

}  // namespace

void hide_values(std::byte* data, std::int64_t bytes, bool done_with) noexcept {
  if (bytes == 0 || poison(data, bytes) || !done_with) return;
  std::memset(data, 0xff, static_cast<std::size_t>(bytes));
}

void hide_gradient(std::byte* data, std::int64_t bytes) noexcept {
  if (bytes == 0 || poison(data, bytes)) return;
  std::memset(data, 0, static_cast<std::size_t>(bytes));
}

void show(std::byte* data, std::int64_t bytes) noexcept {
  if (sanitizer_watches()) __asan_unpoison_memory_region(data, static_cast<std::size_t>(bytes));
}

bool written_while_hidden(const std::byte* data, std::int64_t bytes) noexcept {
  return !sanitizer_watches() &&
         std::any_of(data, data + bytes, [](std::byte value) { return value != std::byte{0}; });
}

}  // namespace zero::detail
