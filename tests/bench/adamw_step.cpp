// AdamW over one array in turns with other programs (see adamw_peers.py):
//   bench_adamw_step DIRECTORY update|limit THREADS ELEMENTS
// "limit" multiplies the three arrays that an update keeps in place by a constant: the limit set by
// memory.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/turns.h"
#include "tests/support/span_optimizer.h"
#include "zero/base/arena.h"
#include "zero/base/cpu/thread_pool.h"

namespace {

using namespace zero;

struct Arrays {
  explicit Arrays(std::int64_t elements)
      : count(elements),
        arena(4 * Arena::rounded(elements * 4), Arena::Sharing::private_memory, "arrays") {
    for (float** array : {&gradient, &master, &first, &second})
      *array = static_cast<float*>(arena.take(elements * 4));
    std::uint32_t random = 1;
    for (std::int64_t i = 0; i < elements; ++i) {
      random = random * 1664525u + 1013904223u;
      gradient[i] = static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-40f;
    }
  }

  std::int64_t count;
  Arena arena;
  float *gradient = nullptr, *master = nullptr, *first = nullptr, *second = nullptr;
};

void update(const Arrays& a, ThreadPool& pool, const optim::SpanOptimizer& optimizer,
            const optim::StepScalars& scalars) {
  pool.for_ranges(a.count, 1024, [&](std::int64_t begin, std::int64_t end) {
    float* state[] = {a.first + begin, a.second + begin};
    optimizer.update(scalars, {.count = end - begin,
                               .gradient = a.gradient + begin,
                               .gradient_dtype = DType::fp32,
                               .master = a.master + begin,
                               .state = state});
  });
}

void read_modify_write(const Arrays& a, ThreadPool& pool) {
  pool.for_ranges(a.count, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (float* x : {a.master, a.first, a.second})
      for (std::int64_t i = begin; i < end; ++i) x[i] *= 1.0001f;
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: bench_adamw_step DIRECTORY update|limit THREADS ELEMENTS\n", stderr);
    return 10;
  }
  const bool updates = std::string(argv[2]) == "update";
  ThreadPool pool(std::atoi(argv[3]));
  const Arrays arrays(std::atoll(argv[4]));
  const auto optimizer = optim::create_optimizer({});
  optim::StepScalars scalars{.step = 0, .learning_rate = 1e-3f, .weight_decay = 0.01f};
  bench::Turns(argv[1], 0).serve([&] {
    ++scalars.step;
    if (updates)
      update(arrays, pool, *optimizer, scalars);
    else
      read_modify_write(arrays, pool);
    return static_cast<double>(arrays.master[0]);
  });
  return 0;
}
