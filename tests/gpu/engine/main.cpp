// Tests that need a GPU. On a machine without one they are skipped, with a line that says so.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "zero/base/error.h"
#include "zero/base/gpu.h"

int main(int argc, char** argv) {
  if (zero::gpu_count() == 0) {
    if (!zero::driver_is_too_old()) {
      std::printf("skipped: this process sees no GPU\n");
      return 77;
    }
    try {
      zero::create_gpu(0);
    } catch (const zero::Error& error) {
      std::printf("%s\n", error.what());
    }
    return 11;
  }
  return doctest::Context(argc, argv).run();
}
