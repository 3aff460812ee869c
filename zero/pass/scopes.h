// The scopes of units, in the pass that the program is in: checks the program's calls, and returns
// pointers to gathered parameters and to gradients. Belongs to the engine; for the program's
// thread, except for leave(), called on any thread that ends a scope.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "zero/pass/accumulation.h"
#include "zero/pass/device_range.h"
#include "zero/pass/evaluations.h"
#include "zero/pass/hidden_memory.h"
#include "zero/pass/passes.h"
#include "zero/pass/step_clock.h"
#include "zero/runtime/call_guard.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class Scopes {
 public:
  // All must outlive this object.
  struct Parts {
    TrainState& train;
    CallGuard& guard;
    Passes& passes;
    Accumulation& accumulation;
    Evaluations& evaluations;
    HiddenMemory& hidden;
    StepClock& clock;
  };
  explicit Scopes(const Parts& parts)
      : parts_(parts), open_ranges_(2 * parts.train.model.units.size()) {}

  // Returns the scope's number, to be passed to leave(). A scope that is no longer open (kept
  // beyond the evaluation or FullModel) ends without effect on other scopes of the unit.
  std::int64_t enter(Op op, int unit);
  void leave(const OpenScope& scope) noexcept;
  // Parameters are named as in the unit, or as in the model.
  const void* value(int unit, std::string_view name, DType dtype) const;
  // Returns the memory of an array that the unit keeps (UnitSpec::keep()).
  void* kept(const OpenScope& scope, std::string_view name, DType dtype) const;
  // Returns what the unit before passes on (UnitSpec::output()), or the gradient of that; null for
  // the first unit of the model.
  void* input(const OpenScope& scope, bool gradient, DType dtype) const;
  // Returns a message between stages, of this size or, without one, as it is; empty if the unit has
  // none.
  std::span<std::byte> message(const OpenScope& scope, std::string_view name,
                               std::optional<std::size_t> size) const;
  // Returns a parameter that is stored whole, by name in the model; null if sharded.
  const void* resident(std::string_view name, DType dtype) const;
  // Zeroed at the first use in a reduction period; or `beta` states whether kernels add.
  void* gradient(int unit, std::string_view name, DType dtype, float* beta);

 private:
  // Throws UsageError for a scope that the phase does not allow.
  void require_phase(Op op, int unit) const;
  int find_param(int unit, std::string_view name) const;
  void require_dtype(int param, DType dtype) const;
  const void* whole(int param, DType dtype) const;
  int use_of(const OpenScope& scope) const;

  const Parts parts_;
  std::int64_t newest_ = 0;                              // number of the newest scope
  std::vector<std::optional<DeviceRange>> open_ranges_;  // per unit: forward, backward
};

}  // namespace zero::detail
