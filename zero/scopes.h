// Handles of an engine: scopes, for access of the program's kernels to a unit's values and
// gradients, micro steps, and handles that live between two calls. Part of zero/zero.h, whose rules
// on threads and collective calls also apply here.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "zero/base/dtype.h"

namespace zero {

namespace detail {
class EngineCore;
enum class Op : std::uint8_t;

// Link from a handle to an engine; the handle may outlive the engine.
class EngineLink {
 public:
  explicit EngineLink(std::shared_ptr<EngineCore* const> core) : core_(std::move(core)) {}
  // Null after the engine was destroyed, or the handle was moved from.
  EngineCore* get() const noexcept { return core_ ? *core_ : nullptr; }
  // Throws UsageError if get() is null; `handle` names the handle in the message.
  EngineCore& of(const char* handle) const;

 private:
  std::shared_ptr<EngineCore* const> core_;
};
}  // namespace detail

// Pointers are invalid after the scope; ZERO_STRICT (docs/environment.md) finds uses of stale ones.
// A unit's values and gradients have the same addresses in each scope, multiples of 64 bytes; in
// between, other units may use the memory (while a FullModel lives, values are in that model's
// memory). Reading a value as a type other than the parameter's dtype throws UsageError. Names are
// the unit's own ("weight") or global ("embed.wte"). Scopes can be moved, also into containers; a
// moved-from scope does nothing. A scope that outlives the engine does nothing either, but throws
// UsageError when values are requested.
class Scope {
 public:
  template <class T>
  const T* value(std::string_view name) const {
    return static_cast<const T*>(raw(name, dtype_of<T>::value));
  }
  // An array that the unit keeps from forward to backward (UnitSpec::keep()): valid, with the
  // contents, until the end of the backward scope of the same use and micro-batch.
  template <class T>
  T* kept(std::string_view name) const {
    return static_cast<T*>(raw_kept(name, dtype_of<T>::value));
  }
  // Returns what the unit declared before passes on for the same micro batch (UnitSpec::output()):
  // valid in forward and in backward. Null for the first unit of the model.
  template <class T>
  const T* input() const {
    return static_cast<const T*>(raw_input(false, dtype_of<T>::value));
  }
  // Returns the memory of what the unit passes on, for forward to write; unchanged in backward.
  template <class T>
  T* output() const {
    return kept<T>("output");
  }

  // For units with output() without a shape: what the stage before has sent for the micro batch,
  // valid in forward and in backward; empty if the input comes from a unit of the same stage, by
  // the program itself.
  std::span<const std::byte> input_bytes() const;
  // Memory for `size` bytes, which the next stage receives after the scope; null if the next unit
  // is of the same stage, or there is none.
  std::byte* output_bytes(std::size_t size) const;

 protected:
  void* raw_input(bool gradient, DType dtype) const;
  Scope(detail::EngineLink core, detail::Op op, int unit);
  Scope(Scope&&) noexcept = default;
  Scope& operator=(Scope&& other) noexcept;
  ~Scope() { end(); }

  detail::EngineLink core_;
  detail::Op op_;
  int unit_;
  std::int64_t number_;  // counts all scopes that the engine has opened
  int exceptions_at_entry_;

 private:
  void end() noexcept;
  const void* raw(std::string_view name, DType dtype) const;
  void* raw_kept(std::string_view name, DType dtype) const;
};

// Scopes of several units may overlap. Destructors only record the end, and never wait or throw.
// Assignment ends the replaced scope.
class [[nodiscard]] ForwardScope : public Scope {
  friend class Unit;
  using Scope::Scope;
};

// Destination of a gradient for a matrix product: beta 0 overwrites, beta 1 adds.
template <class T>
struct GradTarget {
  T* data = nullptr;
  float beta = 0;
};

// Gives access to values too: recompute the forward pass in here. The scope's end queues the
// reduction; if an exception leaves the scope, nothing is sent.
class [[nodiscard]] BackwardScope : public Scope {
 public:
  // Zeroed at first use in a reduction period, because kernels add to the gradient.
  template <class T>
  T* grad(std::string_view name) {
    return static_cast<T*>(raw_grad(name, dtype_of<T>::value, nullptr));
  }
  // Not zeroed at first use, as beta states: saves a pass if a matrix product writes the whole
  // gradient.
  template <class T>
  GradTarget<T> grad_target(std::string_view name) {
    float beta = 0;
    void* data = raw_grad(name, dtype_of<T>::value, &beta);
    return {static_cast<T*>(data), beta};
  }
  // The gradient of the unit's output, to read; and that of the input, to write as a whole before
  // the scope ends. The latter is null for the first unit of the model.
  template <class T>
  const T* output_gradient() const {
    return kept<T>("gradient of output");
  }
  template <class T>
  T* input_gradient() const {
    return static_cast<T*>(raw_input(true, dtype_of<T>::value));
  }
  // As input_bytes() and output_bytes(): the gradient that the next stage has sent, and memory for
  // that which the stage before receives; empty and null also if no unit before is trained.
  std::span<const std::byte> output_gradient_bytes() const;
  std::byte* input_gradient_bytes(std::size_t size) const;

 private:
  friend class Unit;
  using Scope::Scope;
  void* raw_grad(std::string_view name, DType dtype, float* beta);
};

class Unit {
 public:
  int index() const { return index_; }
  std::string_view name() const;
  // The most micro batches between the unit's forward and backward at once; see keep().
  int micro_batches_in_flight() const;
  ForwardScope forward();
  BackwardScope backward();

 private:
  friend class Engine;
  Unit(detail::EngineLink core, int index) : core_(std::move(core)), index_(index) {}
  detail::EngineLink core_;
  int index_;
};

class MicroStep {
 public:
  // Among the micro steps of the step.
  int index() const { return index_; }
  // The number of the micro batch among those of all ranks in the step, from 0 on. With
  // zero_core.rank_independent the results of a step depend on these numbers alone: choose samples
  // and random numbers by number(). A micro step that repeats another rank's micro batch for
  // zero_core.recompute_every has that micro batch's number.
  std::int64_t number() const;
  // True in the last of the rank's own micro steps, and in those that repeat a micro batch.
  bool last() const;
  // Multiply d(mean loss of this micro-batch) by this scale, and by nothing else; the engine
  // divides by ranks x micro steps. On a GPU with a dynamic scale this waits for the previous step.
  float loss_scale() const;
  // The loss scale in device memory, for kernels; never waits.
  const float* device_loss_scale() const;
  // Reports the mean loss of this micro-batch, from host or device memory (read in the order of the
  // compute stream). The loss is averaged over micro steps and ranks when the step is agreed on.
  void loss(double mean);
  void loss(const float* device_mean);
  void loss(std::integral auto mean) { loss(static_cast<double>(mean)); }  // 0 is not a pointer

 private:
  friend class MicroSteps;
  friend class Task;
  friend class Engine;
  MicroStep(detail::EngineLink core, int index) : core_(std::move(core)), index_(index) {}
  detail::EngineLink core_;
  int index_;
};

// The micro steps of one optimizer step; run all, then call Engine::step(). With
// zero_core.rank_independent ranks may have different numbers of micro steps. In the steps of
// zero_core.recompute_every the end of a loop compares results over all ranks, and if results
// differ throws NumericError, or PeerFailed on the ranks that are not named.
class MicroSteps {
 public:
  class iterator {
   public:
    MicroStep operator*() const;
    iterator& operator++() {
      ++index_;
      return *this;
    }
    // Comparing with end() ends the last micro step if this step may repeat micro batches.
    bool operator!=(const iterator& other) const { return index_ < other.index_ || repeats(); }

   private:
    friend class MicroSteps;
    iterator(detail::EngineLink core, int index, std::int64_t pass)
        : core_(std::move(core)), index_(index), pass_(pass) {}
    bool repeats() const;
    detail::EngineLink core_;
    int index_;
    std::int64_t pass_;  // number of the begin() that made this
  };
  iterator begin() const;
  iterator end() const { return {core_, count_, 0}; }

 private:
  friend class Engine;
  MicroSteps(detail::EngineLink core, int count) : core_(std::move(core)), count_(count) {}
  detail::EngineLink core_;
  int count_;
};

// A scope of a step, to be opened next: forward or backward of a unit for a micro batch.
class Task {
 public:
  Unit& unit() const;
  MicroStep micro_step() const { return {core_, micro_step_}; }
  bool is_forward() const { return is_forward_; }

 private:
  friend class Tasks;
  Task(detail::EngineLink core, int unit, int micro_step, bool is_forward)
      : core_(std::move(core)), unit_(unit), micro_step_(micro_step), is_forward_(is_forward) {}
  detail::EngineLink core_;
  int unit_, micro_step_;
  bool is_forward_;
};

// The tasks of this rank in a step, in their order; run all, each by its one scope, then call
// Engine::step(). A fused() unit has a backward task alone. With a pipeline these are the units of
// the rank's stage, and the micro batches interleave by the schedule.
class Tasks {
 public:
  class iterator {
   public:
    Task operator*() const;
    iterator& operator++() {
      ++number_;
      return *this;
    }
    bool operator!=(const iterator& other) const { return number_ != other.number_; }

   private:
    friend class Tasks;
    iterator(detail::EngineLink core, int number) : core_(std::move(core)), number_(number) {}
    detail::EngineLink core_;
    int number_;
  };
  // Begins the step's pass.
  iterator begin() const;
  iterator end() const;

 private:
  friend class Engine;
  explicit Tasks(detail::EngineLink core) : core_(std::move(core)) {}
  detail::EngineLink core_;
};

// Forward scopes outside micro_steps(), without gradients. Movable like scopes; the engine's next
// call throws an error that occurs at the end. next() returns false once this rank has no batch
// left and has served the gathers of all ranks.
class [[nodiscard]] Evaluation {
 public:
  Evaluation(Evaluation&&) noexcept = default;
  Evaluation& operator=(Evaluation other) noexcept {  // ends the replaced
    std::swap(core_, other.core_);
    return *this;
  }
  ~Evaluation() { end(); }
  bool next(bool have_batch);

 private:
  friend class Engine;
  explicit Evaluation(detail::EngineLink core) : core_(std::move(core)) {}
  void end() noexcept;
  detail::EngineLink core_;
};

// Until destroyed, forward() is local on the ranks that hold the whole model, such as for sampling
// on the root.
class [[nodiscard]] FullModel {
 public:
  FullModel(FullModel&&) noexcept = default;
  FullModel& operator=(FullModel other) noexcept {  // ends the replaced
    std::swap(core_, other.core_);
    return *this;
  }
  ~FullModel() { end(); }

 private:
  friend class Engine;
  explicit FullModel(detail::EngineLink core) : core_(std::move(core)) {}
  void end() noexcept;
  detail::EngineLink core_;
};

}  // namespace zero
