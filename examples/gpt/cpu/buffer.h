// The trainer's own memory: allocated and touched once at start, zeroed, aligned to a cache line.
// Large buffers use huge pages if the system grants them.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace gpt {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t count) : count_(count) {
    if (count == 0) return;
    const bool large = bytes() >= 4 * huge_page;
    const std::align_val_t alignment{large ? huge_page : 64};
    data_ = {static_cast<T*>(::operator new(bytes(), alignment)), Release{alignment}};
    if (large) madvise(data_.get(), bytes(), MADV_HUGEPAGE);  // harmless on failure
    std::memset(static_cast<void*>(data_.get()), 0, bytes());
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }
  std::span<T> span() { return {data(), static_cast<std::size_t>(count_)}; }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  struct Release {
    std::align_val_t alignment{64};
    void operator()(T* data) const { ::operator delete(data, alignment); }
  };

  std::unique_ptr<T, Release> data_;
  std::int64_t count_ = 0;
};

}  // namespace gpt
