#include "zero/base/run_marks.h"

#include <cstdio>
#include <cstdlib>

namespace zero {
namespace {

bool wanted() {
  return std::getenv(run_marks_variable) != nullptr;
}

}  // namespace

void mark_start(int rank) {
  if (wanted()) std::fprintf(stderr, "zero: mark: start %d\n", rank);
}

void mark_code(int exit_code) noexcept {
  if (wanted()) std::fprintf(stderr, "zero: mark: code %d\n", exit_code);
}

}  // namespace zero
