// Streams and events of a device of torch that only notes the calls: a GPU's without a GPU.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>

#include "pytorch/wrap_policy.h"
#include "zero/testing.h"

// Included after torch, since that has its own CHECK.
#undef CHECK
#include <doctest/doctest.h>

namespace nn = torch::nn;
namespace zt = zero::pytorch;

namespace {

constexpr auto device_type = at::kPrivateUse1;

c10::Stream stream(char name) {
  return c10::Stream(c10::Stream::UNSAFE, at::Device(device_type, 0), name);
}

// Notes waits of streams, such as "s>e " if stream s waits for stream e.
struct Waits {
  std::string text;
  char current = 'e';  // the engine's

  std::string take() { return std::exchange(text, ""); }
};

class NotedOrder final : public zt::StreamOrder {
 public:
  explicit NotedOrder(Waits& waits) : waits_(waits) {}
  c10::Stream current() const override { return stream(waits_.current); }
  void wait(c10::Stream waiting, c10::Stream other) override {
    waits_.text += {static_cast<char>(waiting.id()), '>', static_cast<char>(other.id()), ' '};
  }

 private:
  Waits& waits_;
};

// A device of torch whose events are noted.
std::string event_calls;

class NotedGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = device_type;
  c10::DeviceType type() const override { return device_type; }
  c10::Device exchangeDevice(c10::Device device) const override { return device; }
  c10::Device getDevice() const override { return {device_type, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream('e'); }
  c10::Stream exchangeStream(c10::Stream other) const override { return other; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    *event = &event_calls;
    event_calls += {'r', static_cast<char>(stream.id()), ' '};
  }
  void block(void*, const c10::Stream& stream) const override {
    event_calls += {'b', static_cast<char>(stream.id()), ' '};
  }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, NotedGuard)

}  // namespace

TEST_CASE("a stream waits for torch's work on another by an event") {
  const auto order = zt::torch_stream_order(at::Device(device_type, 0));
  CHECK(order->current() == stream('e'));
  order->wait(stream('s'), order->current());
  CHECK(event_calls == "re bs ");
  CHECK(zt::torch_stream_order(at::kCPU) == nullptr);
}

TEST_CASE("streams that use a unit wait for its memory, and the engine waits for them") {
  for (int stage : {0, 3}) {
    INFO("stage ", stage);
    zero::Runtime runtime = zero::Runtime::single();
    nn::Sequential net(nn::Linear(4, 4), nn::Linear(4, 4));
    Waits waits;
    std::unique_ptr<zero::Engine> engine;  // ends after the parameters
    zt::ShardedParameters parameters(zt::declare_units(*net, {}), at::kCPU,
                                     std::make_unique<NotedOrder>(waits));
    zero::Config config;
    config.batch.train_micro_batch_size_per_gpu = 1;
    config.zero_optimization.stage = stage;
    engine = std::make_unique<zero::Engine>(runtime, parameters.spec(), config);
    parameters.attach(runtime, *engine);
    const auto forward = [&](int unit, const at::Tensor& x) {
      return net->at<nn::LinearImpl>(unit).forward(x);
    };
    for (int step = 0; step < 2; ++step) {
      parameters.begin_forward(true, true);
      at::Tensor x = forward(0, torch::ones({2, 4}));
      CHECK(waits.take() == "");
      waits.current = 's';
      x = forward(1, x);
      x = forward(1, x);
      CHECK(waits.take() == "s>e ");  // once
      waits.current = 't';
      x = forward(1, x);
      CHECK(waits.take() == "t>e ");
      waits.current = 'e';
      x = forward(0, x);
      CHECK(waits.take() == "e>s e>t ");  // before the memory of the unit has another use
      parameters.end_forward();
      waits.current = 's';  // autograd's choice is the stream of forward
      x.sum().backward();
      const std::string in_backward = waits.take();
      CHECK(in_backward.starts_with("s>e "));
      CHECK(in_backward.ends_with("e>s "));
      waits.current = 'e';
      parameters.end_backward();
      parameters.step({}).wait();
      CHECK(waits.take() == "");
    }
  }
}
