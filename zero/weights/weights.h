// The values of an engine's parameters and buffers: filled by the program or from a file, read,
// exported, and temporarily held whole (Engine::materialize). Collective, between steps; for the
// program's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/pass/offload_streams.h"
#include "zero/pass/transfers.h"
#include "zero/runtime/call_guard.h"
#include "zero/state/element_visits.h"
#include "zero/state/train_state.h"
#include "zero/weights/change_windows.h"

namespace zero::detail {

class Weights {
 public:
  using Fill = std::function<void(ParamShard)>;

  Weights(TrainState& train, CallGuard& guard, Transfers& transfers, OffloadStreams& offload)
      : train_(train), guard_(guard), transfers_(transfers), offload_(offload) {}

  void initialize(const Fill& fill) {
    fill_where(rounded(fill), [](int) { return true; });
  }
  // Fills parameters that have no values yet.
  void initialize_rest(const Fill& fill) {
    const std::vector<char> before = train_.has_values;
    fill_where(rounded(fill), [&](int param) { return !before[param]; });
  }
  // In weight_files.cpp. Returns the names that the file lacks and may lack.
  std::vector<std::string> load(const std::string& file, const LoadOptions& options);
  void export_model(const std::string& directory, const ExportOptions& options);
  // Implement Engine::stream_weights() and Engine::gather().
  void stream(const StreamOptions& options, const std::function<void(const WeightPiece&)>& visitor);
  // Implements Engine::changes(). Returns null if the receiver needs all weights. Sets `since` to
  // that of data rank 0.
  std::shared_ptr<ChangeWindows> begin_changes(std::optional<std::uint64_t>& since,
                                               const StreamOptions& options, std::uint64_t& digest);
  void gather(std::string_view name, std::span<std::byte> whole, int only_rank);

  // Reads a whole array of a parameter ("value", "grad", "master", "exp_avg", ...), times `scale`.
  void read(std::string_view name, std::string_view what, std::span<float> whole, float scale);
  // Reads the sum over all ranks and micro steps, times `scale`.
  void read_unreduced_gradient(std::string_view name, std::span<float> whole, float scale);
  // Implements Engine::adopt().
  void adopt(std::string_view name);
  // Sets the values of a parameter, and the master weights.
  void write(std::string_view name, std::span<const float> whole);
  // Implements Engine::visit(). Returns whether parameters have new values.
  bool visit(const ElementVisitor& visitor, std::optional<float> gradient_scale);
  // Sets an optimizer state of a parameter.
  void write_state(std::string_view name, std::string_view state, std::span<const float> whole);
  std::uint64_t digest();

  // Until dematerialize(), scopes of ranks that hold the whole model use separate memory.
  void materialize(int only_rank);
  void dematerialize() noexcept;

 private:
  // Fills this rank's slices of the wanted parameters, then updates all copies.
  void fill_where(const Fill& fill, const std::function<bool(int param)>& wanted);
  void fill_piece(const SegmentId& id, const ParamRange& piece, const Fill& fill);
  // Returns the callback of initial values, which zero_core.round_initial_weights rounds.
  Fill rounded(const Fill& fill) const;
  void adopt_piece(const SegmentId& id, const ParamRange& piece);
  // Throws DisagreementError if ranks have different bytes; `what` says where the bytes come from.
  // Collective.
  void require_equal(int param, std::span<const std::byte> bytes, const char* what);
  // Throws UsageError for infinity and NaN in a trained parameter or a state.
  void require_finite(int param, std::span<const float> values, std::int64_t begin,
                      const char* call) const;
  void compare_values(int param);
  void copy_full_model(bool holds);
  // Throws UsageError for an unknown name, or a number of elements that is not the parameter's.
  int find_param(std::string_view name, std::ptrdiff_t elements, const char* call) const;
  // Hashes these arrays of all parameters, of all ranks together. Collective.
  std::uint64_t digest_of(std::span<const std::string> arrays, std::string_view subject);
  // Throws UsageError if the parameter has no such array.
  ArrayId find_array(int param, std::string_view what) const;

  std::optional<std::uint64_t> sent_;  // the digest at the last begin_changes()
  TrainState& train_;
  CallGuard& guard_;
  Transfers& transfers_;
  OffloadStreams& offload_;
  // While a full model exists and parameters are sharded: the model's memory, and the previous
  // addresses of the segments' gathered parameters.
  Arena full_model_;
  std::vector<std::byte*> slots_;
};

}  // namespace zero::detail
