// A user's own test: ranks as threads of one process, with the installed headers.
#include <atomic>
#include <cstdlib>

#include <zero/testing.h>
#include <zero/zero.h>

int main() {
  std::atomic<bool> right = true;
  zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
    if (runtime.sum(runtime.rank() + 1) != 6) right = false;
  });
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
