#include <exception>

#include "zero/base/error.h"
#include "zero/base/stream.h"

namespace zero {

namespace {

class InlineEvent final : public Event {
 public:
  bool complete() const override { return true; }
  void synchronize() override {
    if (failure_) std::rethrow_exception(failure_);
  }
  void record(std::exception_ptr failure) { failure_ = std::move(failure); }

 private:
  std::exception_ptr failure_;
};

class InlineStream final : public ExecutionStream {
 public:
  const char* kind() const override { return "inline"; }
  bool is_inline() const override { return true; }
  std::unique_ptr<Event> create_event() override { return std::make_unique<InlineEvent>(); }

  void enqueue(Work work) override {
    synchronize();
    try {
      work({});
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

  void record(Event& event) override { static_cast<InlineEvent&>(event).record(failure_); }
  void wait(Event& event) override { event.synchronize(); }
  void synchronize() override {
    if (failure_) std::rethrow_exception(failure_);
  }
  void check() override { synchronize(); }

 private:
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<ExecutionStream> create_inline_stream() {
  return std::make_unique<InlineStream>();
}

}  // namespace zero
