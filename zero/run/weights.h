// The values of an engine's parameters and buffers: filled by the program or from a file, read,
// exported, and held whole for a while (Engine::materialize). Collective, between steps; the
// program's thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/run/call_guard.h"
#include "zero/run/offload_streams.h"
#include "zero/run/transfers.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class Weights {
 public:
  using Fill = std::function<void(ParamShard)>;

  Weights(TrainState& train, CallGuard& guard, Transfers& transfers, OffloadStreams& offload)
      : train_(train), guard_(guard), transfers_(transfers), offload_(offload) {}

  void initialize(const Fill& fill) {
    fill_where(fill, [](int) { return true; });
  }
  // Those that have no values yet.
  void initialize_rest(const Fill& fill) {
    const std::vector<char> before = train_.has_values;
    fill_where(fill, [&](int param) { return !before[param]; });
  }
  // model_files.cpp. Returns what the file lacks and may lack.
  std::vector<std::string> load(const std::string& file, const LoadOptions& options);
  void export_model(const std::string& directory, const ExportOptions& options);

  // All of one array of a parameter ("value", "grad", "master", "exp_avg", ...), times `scale`.
  void read(std::string_view name, std::string_view what, std::span<float> whole, float scale);
  // The sum over all ranks of what each of them has summed up over micro steps, times `scale`.
  void read_unreduced_gradient(std::string_view name, std::span<float> whole, float scale);
  // Engine::adopt().
  void adopt(std::string_view name);
  // Values of a parameter, and its master weights.
  void write(std::string_view name, std::span<const float> whole);
  std::uint64_t digest();

  // Until dematerialize(), scopes of ranks that hold the whole model find it in memory of its own.
  void materialize(int only_rank);
  void dematerialize() noexcept;

 private:
  // Of the parameters that are wanted, this rank's slices; then to wherever copies are.
  void fill_where(const Fill& fill, const std::function<bool(int param)>& wanted);
  void fill_piece(const SegmentId& id, const ParamRange& piece, const Fill& fill);
  void adopt_piece(const SegmentId& id, const ParamRange& piece);
  void compare_values(int param);
  void copy_full_model(bool holds);
  // Throws UsageError for an unknown name, or another number of elements than it has.
  int find_param(std::string_view name, std::ptrdiff_t elements, const char* call) const;

  TrainState& train_;
  CallGuard& guard_;
  Transfers& transfers_;
  OffloadStreams& offload_;
  // While a full model lives where parameters rest as shards: its memory, and where the segments'
  // gathered parameters were before.
  Arena full_model_;
  std::vector<std::byte*> slots_;
};

}  // namespace zero::detail
