// Checks CallTerms::verify: the bits are those of a communicator without it, and if a bit has
// changed in transit, the error names the operation, the subject and both ranks.
#include <doctest/doctest.h>

#include <functional>

#include "tests/comm/conformance.h"
#include "tests/comm/thread_ranks.h"
#include "tests/support/sweep.h"

using namespace zero;
using namespace zero::comm;
using namespace zero::comm::testing;

namespace {

// Passes all calls to another communicator, and flips one bit of the data that it receives from
// `sender`.
class FlippingCommunicator final : public Communicator {
 public:
  FlippingCommunicator(Communicator& inner, int sender)
      : Communicator(inner.rank(), inner.size()), inner_(inner), sender_(sender) {}

  std::string_view transport() const override { return "flipping"; }
  std::unique_ptr<Communicator> split(int, int) override { return nullptr; }

 protected:
  void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                     std::int64_t stride) override {
    inner_.all_gather(send, recv, count, dtype, stride);
    flip(recv, sender_ * stride * size_of(dtype));
  }
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                         std::int64_t stride) override {
    inner_.reduce_scatter(send, recv, count, dtype, stride);
  }
  void do_all_reduce(void* data, std::int64_t count, DType dtype) override {
    inner_.all_reduce(data, count, dtype);
  }
  void do_broadcast(void* data, std::int64_t count, DType dtype, int root) override {
    inner_.broadcast(data, count, dtype, root);
    flip(data, 0);
  }
  void do_all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype) override {
    inner_.all_to_all(send, recv, counts, dtype);
    flip(recv, counts.first_received(sender_, rank()) * size_of(dtype));
  }
  void do_barrier() override { inner_.barrier(); }

 private:
  void flip(void* data, std::int64_t at) {
    if (!flipped_ && sender_ >= 0) static_cast<char*>(data)[at + 7] ^= 16;
    flipped_ = true;
  }

  Communicator& inner_;
  int sender_;
  bool flipped_ = false;
};

constexpr std::int64_t count = 300;

void call(Communicator& communicator, Operation operation, int root) {
  const auto n = static_cast<std::size_t>(communicator.size());
  std::vector<float> one(count, 1), all(count * n, 1);
  switch (operation) {
    case Operation::all_gather:
      return communicator.all_gather(one.data(), all.data(), count, DType::fp32);
    case Operation::reduce_scatter:
      return communicator.reduce_scatter(all.data(), one.data(), count, DType::fp32);
    case Operation::all_reduce:
      return communicator.all_reduce(one.data(), count, DType::fp32);
    case Operation::broadcast:
      return communicator.broadcast(one.data(), count, DType::fp32, root);
    case Operation::all_to_all: {
      std::vector<float> received(all.size());
      return communicator.all_to_all(all.data(), received.data(), count, DType::fp32);
    }
    case Operation::barrier:
      return communicator.barrier();
  }
}

}  // namespace

TEST_CASE("a bit that changes on the way is an error that names operation, unit and both ranks") {
  for (const int ranks : {2, 3})
    for (const auto operation :
         {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce,
          Operation::broadcast, Operation::all_to_all}) {
      const int receiver = 0, sender = ranks - 1;
      std::string message;
      int code = 0;
      try {
        on_thread_ranks(ranks, [&](World& world) {
          const bool flips = world.topology().rank == receiver;
          FlippingCommunicator communicator(world.communicator(), flips ? sender : -1);
          communicator.set_terms({.verify = true});
          communicator.set_subject("unit h.3");
          call(communicator, operation, sender);
          world.communicator().barrier();
        });
      } catch (const NumericError& error) {
        message = error.what();
        code = error.exit_code();
      }
      CAPTURE(message);
      CHECK(code == 16);
      CHECK(message.starts_with(std::string(name_of(operation)) + " of unit h.3 (call 1): "));
      CHECK(message.find(" that rank " + std::to_string(sender) + " sent ") != std::string::npos);
      CHECK(message.find(" that rank " + std::to_string(receiver) + " received") !=
            std::string::npos);
    }
}

TEST_CASE("payloads that are verified have the bits of those that are not") {
  for (const int ranks : {1, 2, 3, 5})
    on_thread_ranks(ranks, [](World& world) {
      Communicator& communicator = world.communicator();
      communicator.set_terms({.verify = true});
      Suite suite;
      suite.counts = {0, 1, 129, 1000, 100003 / communicator.size()};
      if (sweep::is_sanitized) suite.dtypes = {DType::fp32, DType::bf16};
      std::vector<std::byte> memory[2];
      for (auto& buffer : memory)
        buffer.resize(static_cast<std::size_t>(largest_buffer(suite, communicator.size())));
      CHECK(run_suite(communicator, suite,
                      [&](int number, std::int64_t) { return memory[number].data(); }) > 100);
    });
}
