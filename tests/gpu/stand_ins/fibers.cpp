#undef _FORTIFY_SOURCE  // its longjmp() refuses to change stacks
#include <sys/mman.h>
#include <ucontext.h>

#include <csetjmp>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "cuda_runtime.h"

namespace cuda_on_host {

namespace {

constexpr unsigned warp_lanes = 32, most_threads = 1024;
constexpr std::size_t stack_bytes = 128 << 10;

// The state of a thread. One that has ended counts as waiting for nothing.
enum class State { ready, at_block, at_warp, ended };

struct Fiber {
  jmp_buf context;
  bool is_on_its_stack = false;  // `context` is where it waits
  State state = State::ended;
  // An exchange that the thread waits in: `value` becomes the partner's.
  unsigned mask = 0;
  int lanes_apart = 0;
  std::uint64_t value = 0;
};

// The running block, under the lock of run().
class Block {
 public:
  Block() : fibers_(most_threads) {
    void* stacks = mmap(nullptr, most_threads * stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) throw std::runtime_error("no memory for the stacks of a block");
    stacks_ = static_cast<char*>(stacks);
  }

  // Returns false if threads wait for each other forever.
  bool run(unsigned threads, const std::function<void()>& body) {
    body_ = &body;
    threads_ = threads;
    for (unsigned t = 0; t < threads; ++t) start(t);
    for (;;) {
      bool ran = false;
      for (current_ = 0; current_ < threads; ++current_)
        if (fibers_[current_].state == State::ready) {
          threadIdx = dim3(current_, 0, 0);
          resume(fibers_[current_]);
          ran = true;
        }
      if (all(0, threads, State::ended)) return true;
      if (!release() && !ran) return false;
    }
  }

  void wait(State at) {
    Fiber& fiber = fibers_[current_];
    fiber.state = at;
    if (_setjmp(fiber.context) == 0) _longjmp(scheduler_, 1);
  }

  std::uint64_t exchanged(unsigned mask, std::uint64_t value, int lanes_apart) {
    Fiber& fiber = fibers_[current_];
    fiber.mask = mask, fiber.value = value, fiber.lanes_apart = lanes_apart;
    wait(State::at_warp);
    return fiber.value;
  }

 private:
  static Block* running;

  // A fiber runs one thread of a block after another.
  static void enter() {
    for (Block& block = *running;;) {
      (*block.body_)();
      block.wait(State::ended);
    }
  }

  void start(unsigned t) {
    Fiber& fiber = fibers_[t];
    if (fiber.state != State::ended) fiber.is_on_its_stack = false;  // of a block that hung
    fiber.state = State::ready;
  }

  // Runs a fiber until it waits. swapcontext() would do all of this, with two system calls each
  // time for the mask of signals: three quarters of a test's time.
  void resume(Fiber& fiber) {
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.is_on_its_stack) _longjmp(fiber.context, 1);
    fiber.is_on_its_stack = true;
    running = this;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks_ + current_ * stack_bytes;
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, enter, 0);
    setcontext(&context);
  }

  bool all(unsigned begin, unsigned end, State state) const {
    for (unsigned t = begin; t < end; ++t)
      if (fibers_[t].state != state) return false;
    return true;
  }
  bool release(unsigned begin, unsigned end, State state) {
    if (!all(begin, end, state)) return false;
    for (unsigned t = begin; t < end; ++t) fibers_[t].state = State::ready;
    return true;
  }
  // Releases the threads of a warp that a waiting thread exchanges values with, once all of its
  // mask wait for the same.
  bool exchange(unsigned thread) {
    const unsigned mask = fibers_[thread].mask;
    Fiber* const warp = &fibers_[thread / warp_lanes * warp_lanes];
    std::uint64_t given[warp_lanes] = {};
    for (unsigned lane = 0; lane < warp_lanes; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      if (warp[lane].state != State::at_warp || warp[lane].mask != mask) return false;
      given[lane] = warp[lane].value;
    }
    for (unsigned lane = 0; lane < warp_lanes; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      warp[lane].value = given[lane ^ static_cast<unsigned>(warp[lane].lanes_apart)];
      warp[lane].state = State::ready;
    }
    return true;
  }
  // Releases threads that have reached the same barrier or exchange.
  bool release() {
    bool any = release(0, threads_, State::at_block);
    for (unsigned t = 0; t < threads_; ++t)
      if (fibers_[t].state == State::at_warp) any |= exchange(t);
    return any;
  }

  std::vector<Fiber> fibers_;
  char* stacks_;
  jmp_buf scheduler_;
  unsigned current_ = 0, threads_ = 0;
  const std::function<void()>* body_ = nullptr;
};

Block* Block::running = nullptr;

Block& block() {
  static Block one;
  return one;
}

}  // namespace

cudaError_t run(dim3 blocks, dim3 threads, const std::function<void()>& thread) {
  static std::mutex one_launch;
  const std::lock_guard lock(one_launch);
  if (threads.x == 0 || threads.x > most_threads || blocks.x == 0 || blocks.y == 0 ||
      blocks.y > 65535)
    return cudaErrorInvalidValue;
  gridDim = blocks;
  blockDim = threads;
  for (unsigned y = 0; y < blocks.y; ++y)
    for (unsigned x = 0; x < blocks.x; ++x) {
      blockIdx = dim3(x, y, 0);
      if (block().run(threads.x, thread)) continue;
      std::fprintf(stderr, "cuda_on_host: threads of block %u, %u wait for different things\n", x,
                   y);
      return cudaErrorLaunchFailure;
    }
  return cudaSuccess;
}

void wait_for_block() {
  block().wait(State::at_block);
}

std::uint64_t exchanged(unsigned mask, std::uint64_t value, int lanes_apart) {
  return block().exchanged(mask, value, lanes_apart);
}

}  // namespace cuda_on_host
