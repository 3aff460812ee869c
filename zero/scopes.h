// Handles of an engine: scopes, in which a unit's values and gradients are there for the program's
// kernels, micro steps, and what else lives between two calls. Part of zero/zero.h, whose rules on
// threads and collective calls hold here too.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "zero/base/dtype.h"

namespace zero {

namespace detail {
class EngineCore;
enum class Op : std::uint8_t;

// The engine behind a handle, which may outlive it.
class EngineLink {
 public:
  explicit EngineLink(std::shared_ptr<EngineCore* const> core) : core_(std::move(core)) {}
  // Null once the engine has been destroyed, or the handle been moved from.
  EngineCore* get() const noexcept { return core_ ? *core_ : nullptr; }
  // Throws UsageError where there is none; `handle` is what the message calls the handle.
  EngineCore& of(const char* handle) const;

 private:
  std::shared_ptr<EngineCore* const> core_;
};
}  // namespace detail

// Pointers die with the scope; docs/strict-mode.md finds those that are kept. A unit's values and
// gradients have the same addresses in each of its scopes, multiples of 64 bytes; the memory may
// serve other units in between (while a FullModel lives, values lie in its memory). A type other
// than the parameter's dtype is a UsageError. Names are the unit's own ("weight") or global
// ("embed.wte"). Scopes can be moved, into containers too: a moved-from one does nothing. So does
// one that outlives its engine; asking it for values is a UsageError.
class Scope {
 public:
  template <class T>
  const T* value(std::string_view name) const {
    return static_cast<const T*>(raw(name, dtype_of<T>::value));
  }

 protected:
  Scope(detail::EngineLink core, detail::Op op, int unit);
  Scope(Scope&&) noexcept = default;
  Scope& operator=(Scope&& other) noexcept;
  ~Scope() { end(); }

  detail::EngineLink core_;
  detail::Op op_;
  int unit_;
  std::int64_t number_;  // of all scopes that the engine has opened
  int exceptions_at_entry_;

 private:
  void end() noexcept;
  const void* raw(std::string_view name, DType dtype) const;
};

// Scopes of several units may overlap. Destructors record, they never wait or throw; assignment
// ends the scope that is replaced.
class [[nodiscard]] ForwardScope : public Scope {
  friend class Unit;
  using Scope::Scope;
};

// Where a matrix product writes a gradient: beta 0 overwrites, beta 1 adds.
template <class T>
struct GradTarget {
  T* data = nullptr;
  float beta = 0;
};

// Holds values too: recompute the forward in here. Its end queues the reduction; left by an
// exception, it sends nothing.
class [[nodiscard]] BackwardScope : public Scope {
 public:
  // Zeroed at first use in a reduction period: kernels add.
  template <class T>
  T* grad(std::string_view name) {
    return static_cast<T*>(raw_grad(name, dtype_of<T>::value, nullptr));
  }
  // Not zeroed at first use, beta says so: saves a pass where a matrix product writes it all.
  template <class T>
  GradTarget<T> grad_target(std::string_view name) {
    float beta = 0;
    void* data = raw_grad(name, dtype_of<T>::value, &beta);
    return {static_cast<T*>(data), beta};
  }

 private:
  friend class Unit;
  using Scope::Scope;
  void* raw_grad(std::string_view name, DType dtype, float* beta);
};

class Unit {
 public:
  int index() const { return index_; }
  std::string_view name() const;
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
  int index() const { return index_; }
  bool last() const;
  // Multiply d(mean loss of this micro batch) by it, and by nothing else; the engine divides by
  // ranks x micro steps. On a GPU with a dynamic scale it waits for the step before.
  float loss_scale() const;
  // The same in the device's memory, for kernels; never waits.
  const float* device_loss_scale() const;
  // The mean loss of this micro batch, from the host or from the device's memory (read in the order
  // of the compute stream); averaged over micro steps and ranks with the vote.
  void loss(double mean);
  void loss(const float* device_mean);
  void loss(std::integral auto mean) { loss(static_cast<double>(mean)); }  // 0 is no null pointer

 private:
  friend class MicroSteps;
  friend class Engine;
  MicroStep(detail::EngineLink core, int index) : core_(std::move(core)), index_(index) {}
  detail::EngineLink core_;
  int index_;
};

// The micro steps of one optimizer step; run all of them, then call Engine::step().
class MicroSteps {
 public:
  class iterator {
   public:
    MicroStep operator*() const;
    iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator!=(const iterator& other) const { return index_ != other.index_; }

   private:
    friend class MicroSteps;
    iterator(detail::EngineLink core, int index, std::int64_t pass)
        : core_(std::move(core)), index_(index), pass_(pass) {}
    detail::EngineLink core_;
    int index_;
    std::int64_t pass_;  // each begin() starts one
  };
  iterator begin() const;
  iterator end() const { return {core_, count_, 0}; }

 private:
  friend class Engine;
  MicroSteps(detail::EngineLink core, int count) : core_(std::move(core)), count_(count) {}
  detail::EngineLink core_;
  int count_;
};

// Forward scopes outside micro_steps(), without gradients. Movable as scopes are; an error at its
// end is thrown by the next call of the engine. next() is false once this rank has no
// batch left and has served the gathers of the others.
class [[nodiscard]] Evaluation {
 public:
  Evaluation(Evaluation&&) noexcept = default;
  Evaluation& operator=(Evaluation other) noexcept {  // which ends what is replaced
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

// While it lives, forward() is local on the ranks that hold the whole model: sample on the root.
class [[nodiscard]] FullModel {
 public:
  FullModel(FullModel&&) noexcept = default;
  FullModel& operator=(FullModel other) noexcept {  // which ends what is replaced
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
