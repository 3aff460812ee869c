// What is trained, as checkpoints save and load it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zero/checkpoint/snapshot.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class TrainSnapshot : public checkpoint::Snapshot {
 public:
  explicit TrainSnapshot(TrainState& train) : train_(train) {}

  checkpoint::Manifest describe(bool trainable_only) const override;
  std::vector<checkpoint::ElementRange> ranges_of(int rank, bool trainable_only) const override;
  void read(const checkpoint::ElementRange& range, std::span<std::byte> out) const override;
  bool readable_beside_steps() const override { return train_.store->readable_beside_steps(); }
  bool rests_on_device() const override { return train_.host_tier == nullptr; }
  std::span<const std::byte> on_device(const checkpoint::ElementRange& range) const override;
  int group_count() const override;
  int group_of(int parameter) const override;
  int group_of_chunk(int chunk) const override {
    return train_.plan.inputs.chunks[chunk].flat_unit;
  }
  bool has_values() const override;
  void check(const std::string& path, const checkpoint::Manifest& saved) override;
  void check_values(const std::string& file, const checkpoint::ElementRange& range, DType stored,
                    std::span<const std::byte> bytes) const override;
  void write(const checkpoint::ElementRange& range, DType stored,
             std::span<const std::byte> bytes) override;
  void adopt(const checkpoint::Manifest& saved) override;
  std::int64_t samples_per_step() const override { return train_.plan.batch.global; }

 private:
  checkpoint::ManifestParameter describe_parameter(int param) const;
  std::map<std::string, std::string> equality_terms() const;
  // Of a buffer, its index; -1: it is a parameter.
  int buffer_of(int parameter) const;
  ArrayId array_of(const checkpoint::ElementRange& range) const;
  // Where the range begins, in elements from the start of the segment.
  std::int64_t offset_of(const checkpoint::ElementRange& range) const;
  void write_as(const ArrayId& array, std::int64_t begin, DType stored,
                std::span<const std::byte> bytes);
  void check_frozen(const std::string& path, const checkpoint::Manifest& saved) const;
  void spread_states(const SegmentId& id);
  void spread_partial_state(const ArrayId& array);

  TrainState& train_;
  // Samples that were seen before this step: by the run that was resumed.
  std::int64_t samples_before_ = 0, samples_before_step_ = 0;
  std::optional<optim::LossScalerState> scaler_;  // of the checkpoint that was checked
};

}  // namespace zero::detail
