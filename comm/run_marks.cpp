#include "comm/run_marks.h"

#include <cstdio>
#include <cstdlib>

#include "comm/environment.h"

namespace zero::comm {
namespace {

bool wanted() {
  return std::getenv(run_marks_variable) != nullptr;
}

}  // namespace

void mark_start() {
  if (wanted()) std::fprintf(stderr, "zero: mark: start %d\n", launched_rank());
}

void mark_code(int exit_code) {
  if (wanted()) std::fprintf(stderr, "zero: mark: code %d\n", exit_code);
}

// The code first: once the cause is out, others may end this process.
void print_cause(int rank, const std::string& reason, int exit_code) {
  mark_code(exit_code);
  std::fprintf(stderr, "zero: rank %d: %s\n", rank, reason.c_str());
}

}  // namespace zero::comm
