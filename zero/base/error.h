// Errors, with a type and an exit code per kind. Messages state the expectation and the remedy.
// After an error the engine refuses further work.
#pragma once

#include <stdexcept>
#include <string>

namespace zero {

class Error : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
  static constexpr int code = 70;  // exit code of this kind
  // Exit code for the process: see the table in docs/exit-codes.md.
  virtual int exit_code() const noexcept { return code; }
};

namespace detail {
template <int number>
class CodedError : public Error {
 public:
  using Error::Error;
  static constexpr int code = number;
  int exit_code() const noexcept override { return code; }
};
}  // namespace detail

// A config file, an option or an input file is unusable.
class ConfigError : public detail::CodedError<10> {
  using CodedError::CodedError;
};
// The ranks, hosts or devices do not fit the job.
class TopologyError : public detail::CodedError<11> {
  using CodedError::CodedError;
};
// Ranks were given different options, configs, models, weights, data or calls.
class DisagreementError : public detail::CodedError<12> {
  using CodedError::CodedError;
};
// Memory is too small; only at start.
class MemoryError : public detail::CodedError<13> {
  using CodedError::CodedError;
};
// A checkpoint or model could not be written.
class SaveError : public detail::CodedError<14> {
  using CodedError::CodedError;
};
// A checkpoint or model file is damaged or belongs to something else.
class LoadError : public detail::CodedError<15> {
  using CodedError::CodedError;
};
// The numbers are beyond repair (non-finite gradients step after step).
class NumericError : public detail::CodedError<16> {
  using CodedError::CodedError;
};
// Another rank failed or died; the message carries the reason, the first cause.
class PeerFailed : public detail::CodedError<17> {
 public:
  explicit PeerFailed(const std::string& reason, int cause_exit_code = code)
      : CodedError(reason), cause_exit_code_(cause_exit_code) {}
  // The failed rank's own exit code, so that all ranks leave with the first cause's.
  int exit_code() const noexcept override { return cause_exit_code_; }

 private:
  int cause_exit_code_;
};
// A wait reached the time limit; the message names the missing rank, unit and operation.
class StalledError : public detail::CodedError<18> {
  using CodedError::CodedError;
};
// An offloaded block could not be read or written, or differs from the data written.
class OffloadError : public detail::CodedError<19> {
  using CodedError::CodedError;
};
// The calling program broke a rule of the API.
class UsageError : public detail::CodedError<70> {
  using CodedError::CodedError;
};

}  // namespace zero
