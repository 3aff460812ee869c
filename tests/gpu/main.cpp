// Tests that need a GPU; where there is none they are skipped, and say so.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "zero/base/gpu.h"

int main(int argc, char** argv) {
  if (zero::gpu_count() == 0) {
    std::printf("skipped: this process sees no GPU\n");
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
