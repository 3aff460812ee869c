#include "zero/checkpoint/device_copies.h"

#include <utility>

namespace zero::detail {

DeviceCopies::DeviceCopies(RuntimeCore& runtime, std::size_t flat_units)
    : runtime_(runtime),
      stream_(runtime.device().create_stream(Device::Role::copies)),
      begun_(runtime.compute().create_event()) {
  for (std::size_t f = 0; f < flat_units; ++f) ended_.push_back(stream_->create_event());
}

void DeviceCopies::begin() {
  runtime_.compute().record(*begun_);
  stream_->wait(*begun_);
}

void DeviceCopies::copy(void* to, const void* from, std::int64_t bytes) {
  stream_->enqueue([=, this](Stream stream) { runtime_.device().copy(to, from, bytes, stream); });
}

void DeviceCopies::call(std::function<void()> work) {
  stream_->enqueue([this, work = std::move(work)](Stream stream) mutable {
    runtime_.device().call(std::move(work), stream);
  });
}

void DeviceCopies::end_of(int flat_unit) {
  stream_->record(*ended_[flat_unit]);
}

void DeviceCopies::precede(int flat_unit, ExecutionStream& stream) {
  for (int f = 0; f < std::ssize(ended_); ++f)
    if (flat_unit < 0 || flat_unit == f) stream.wait(*ended_[f]);
}

}  // namespace zero::detail
