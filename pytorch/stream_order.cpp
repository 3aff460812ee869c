#include "pytorch/stream_order.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace zero::pytorch {

namespace {

class TorchStreamOrder final : public StreamOrder {
 public:
  explicit TorchStreamOrder(at::Device device) : device_(device), streams_(device.type()) {}
  c10::Stream current() const override { return streams_.getStream(device_); }
  void wait(c10::Stream waiting, c10::Stream other) override {
    c10::Event done(device_.type());
    done.record(other);
    done.block(waiting);
  }

 private:
  at::Device device_;
  c10::impl::VirtualGuardImpl streams_;
};

}  // namespace

std::unique_ptr<StreamOrder> torch_stream_order(at::Device device) {
  if (device.is_cpu()) return nullptr;
  return std::make_unique<TorchStreamOrder>(device);
}

void SideStreams::enter(std::vector<c10::Stream>& users) {
  if (!own_) return;
  const c10::Stream current = order_->current();
  if (current == *own_ || std::ranges::find(users, current) != users.end()) return;
  order_->wait(current, *own_);
  users.push_back(current);
}

void SideStreams::leave(std::vector<c10::Stream>& users) {
  for (const c10::Stream user : users) order_->wait(*own_, user);
  users.clear();
}

}  // namespace zero::pytorch
