// Streams, events and memory of a device of torch that only notes the calls: a GPU's without a GPU.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "pytorch/device_memory.h"
#include "pytorch/initial_values.h"
#include "pytorch/tensor_device.h"
#include "pytorch/wrap_policy.h"
#include "tests/support/stderr_of.h"
#include "zero/testing.h"

#include "tests/pytorch/doctest_after_torch.h"

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

// Its memory is that of the host.
class NotedAllocator final : public c10::DeviceAllocator {
 public:
  std::size_t free = 0;
  std::atomic<int> emptied = 0;

  c10::DataPtr allocate(std::size_t) override { throw std::bad_alloc(); }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { ++emptied; }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) override {
    return {free, free};
  }
};
NotedAllocator& allocator() {
  static NotedAllocator noted;
  return noted;
}
REGISTER_ALLOCATOR(device_type, &allocator())

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  return to;
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", &copy_from);
}

}  // namespace

TEST_CASE("a model on the GPU stays there if its engine fits next to it on all ranks") {
  const at::Device device(device_type, 0);
  for (const bool fits : {true, false}) {
    INFO(fits);
    allocator().free = 1000;
    allocator().emptied = 0;
    const std::string said = zero::tests::stderr_of([&] {
      zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
        std::vector<float> values{1, 2, 3};
        at::Tensor there = zt::tensor_at(values.data(), {3}, at::kFloat, device);
        at::Tensor here = torch::ones({2});
        at::Tensor* const tensors[] = {&there, &here};
        const std::int64_t engine_bytes = fits || runtime.is_root() ? 1000 : 1001;
        zt::make_room(
            device, tensors, [&] { return engine_bytes; }, runtime);
        runtime.sum(0);  // the other rank has asked too
        CHECK(here.is_cpu());
        CHECK(there.is_cpu() == !fits);
        values.assign(3, 0);  // host memory of a tensor there
        if (!fits) CHECK(at::equal(there, torch::tensor({1.F, 2.F, 3.F})));
      });
    });
    CHECK(allocator().emptied == (fits ? 2 : 4));  // ranks
    CHECK(said == std::string("zero: the model's 0.00 GiB on the GPU ") +
                      (fits ? "stay there" : "wait in the host memory of each rank") +
                      " until its engine has them, which takes 0.00 GiB of 0.00 GiB free there" +
                      (fits ? "\n" : "; construct the model on the CPU or inside zero.Init\n"));
  }
}

TEST_CASE("initial values pass through a small buffer") {
  zero::testing::run_ranks(3, [](zero::Runtime& runtime) {
    zt::InitialValues values(at::kCPU, 128);  // bytes; as if the CPU were a GPU
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kChar}) {
      const at::Tensor roots = torch::arange(1001).to(type);
      const at::Tensor own = runtime.is_root() ? roots.clone() : torch::zeros({1001}, type);
      values.broadcast(runtime, own);
      CHECK(at::equal(own, roots));
      std::vector<float> part(500);
      values.read(own.view({7, 11, 13}), 17, part);
      const at::Tensor numbers = type == at::kChar ? roots.view(at::kByte) : roots;
      CHECK(at::equal(torch::tensor(part), numbers.narrow(0, 17, 500).to(at::kFloat)));
    }
  });
}

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
      parameters.pre_forward(true, true);
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
      parameters.post_forward();
      waits.current = 's';  // autograd's choice is the stream of forward
      x.sum().backward();
      const std::string in_backward = waits.take();
      CHECK(in_backward.starts_with("s>e "));
      CHECK(in_backward.ends_with("e>s "));
      waits.current = 'e';
      parameters.post_backward();
      parameters.step({}).wait();
      CHECK(waits.take() == "");
    }
  }
}
