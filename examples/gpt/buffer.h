// Memory of the trainer's own: taken and touched once at start, 64-byte aligned, zeroed.
#pragma once

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
    data_.reset(static_cast<T*>(::operator new (bytes(), std::align_val_t{64})));
    std::memset(static_cast<void*>(data_.get()), 0, bytes());
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }
  std::span<T> span() { return {data(), static_cast<std::size_t>(count_)}; }

 private:
  struct Release {
    void operator()(T* data) const { ::operator delete (data, std::align_val_t{64}); }
  };

  std::unique_ptr<T, Release> data_;
  std::int64_t count_ = 0;
};

}  // namespace gpt
