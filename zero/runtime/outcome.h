// The result of a rank's part of a collective action on files, and the joint result of all ranks:
// the same error with the same message on each rank.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "zero/base/error.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

// Code 0: success.
struct Outcome {
  int code = 0;
  std::string text;
};

// Returns the exception being handled as an outcome.
Outcome current_failure();

// Runs the work, which must not communicate, and returns any exception as an outcome.
template <class Work>
Outcome attempt(Work&& work) {
  try {
    work();
    return {};
  } catch (const std::bad_alloc&) {
    return {MemoryError::code, "out of memory"};
  } catch (const std::exception&) {
    return current_failure();
  }
}

// Throws the exception type of the code.
[[noreturn]] void raise(const Outcome& outcome);
// Returns the joint outcome of all ranks: the same on each rank.
Outcome agree_on_outcome(Ranks& ranks, const std::string& subject, const Outcome& own);
// Throws the joint outcome if it is a failure.
void agree_or_raise(Ranks& ranks, const std::string& subject, const Outcome& own);

}  // namespace zero::detail
