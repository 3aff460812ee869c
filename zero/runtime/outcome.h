// How a rank's part of a collective action on files went, and what all ranks make of it: the same
// error with the same words on each of them.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "zero/base/error.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

// Code 0: well.
struct Outcome {
  int code = 0;
  std::string text;
};

// The exception that is being handled, as an outcome.
Outcome current_failure();

// What the work throws, as an outcome. It must not communicate.
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

// As the exception that belongs to the code.
[[noreturn]] void raise(const Outcome& outcome);
// The outcome of all ranks together: the same on each of them.
Outcome agree_on_outcome(Ranks& ranks, const std::string& subject, const Outcome& own);
// The same, thrown where it is no good one.
void agree_or_raise(Ranks& ranks, const std::string& subject, const Outcome& own);

}  // namespace zero::detail
