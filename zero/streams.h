// Whole weights, and changes of weights, that leave an engine piece by piece:
// Engine::stream_weights() and Engine::changes().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "zero/base/dtype.h"
#include "zero/scopes.h"

namespace zero {

class Engine;

namespace detail {
class ChangeWindows;
}

// Elements of a parameter, in the parameter's dtype and row-major order, from element `begin` on,
// in the memory of this rank's device. Of a parameter that tensor ranks hold in parts, this rank's
// part.
struct WeightPiece {
  std::string_view name;
  std::span<const std::int64_t> shape;
  DType dtype = DType::fp32;
  std::int64_t begin = 0;
  std::span<const std::byte> values;
};

struct StreamOptions {
  std::int64_t budget = std::int64_t{64} << 20;  // bytes of a piece, at most
  int only_rank = -1;                            // the data rank that receives; -1: every rank
  bool trainable_only = false;
};

// Elements of a parameter with new values, in the parameter's dtype, both in host memory:
// `elements` counts from the start of the whole in row-major order.
struct ChangedValues {
  std::string_view name;
  std::span<const std::int64_t> shape;
  DType dtype = DType::fp32;
  std::span<const std::int64_t> elements;
  std::span<const std::byte> values;
};

// The changes between two calls of Engine::changes(). All ranks call next() equally often,
// with no other call of the engine in between. Use before the engine is destroyed.
class ChangeStream {
 public:
  // The digest since which the changes are known. Empty if they are not: then next() returns false
  // at once, and the receiver needs all of Engine::stream_weights(), before another call that
  // changes weights.
  std::optional<std::uint64_t> since() const { return since_; }
  // Hashes all parameters as they are now: the `since` of the next call.
  std::uint64_t digest() const { return digest_; }
  // Calls the visitor for the changes of some of a unit's parameters, on the ranks that receive; an
  // element comes once. Returns false once there are none left. Collective.
  bool next(const std::function<void(const ChangedValues&)>& visitor);

 private:
  friend class Engine;
  explicit ChangeStream(detail::EngineLink core) : core_(std::move(core)) {}
  detail::EngineLink core_;
  std::shared_ptr<detail::ChangeWindows> windows_;  // null if full
  std::optional<std::uint64_t> since_;
  std::uint64_t digest_ = 0;
};

}  // namespace zero
