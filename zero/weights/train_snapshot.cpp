#include "zero/weights/train_snapshot.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "optim/gradient_norm.h"
#include "zero/checkpoint/kept_batch.h"
#include "zero/state/array_exchange.h"
#include "zero/weights/saved_layout.h"
#include "zero/weights/scaler_record.h"

namespace zero::detail {

using checkpoint::ElementRange;
using checkpoint::Manifest;
using checkpoint::ManifestParameter;

namespace {

std::string cpu_type() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos)
      return line.substr(line.find(':') + 2);
  return "unknown";
}

class TrainSnapshot : public checkpoint::Snapshot {
 public:
  explicit TrainSnapshot(TrainState& train)
      : train_(train), layout_{train.plan, train.model, train.tensor_parts, &train.stages} {}

  bool readable_during_steps() const override { return train_.store->readable_during_steps(); }
  bool rests_on_device() const override { return !train_.offloads_to_host(); }
  std::int64_t samples_per_step() const override { return train_.plan.batch.global; }

  Manifest describe(bool trainable_only) const override {
    Manifest m;
    m.step = train_.step;
    m.applied_steps = train_.applied_steps;
    m.skipped_in_a_row = train_.skipped_in_a_row;
    m.samples = samples_before_ + (m.step - samples_before_step_) * samples_per_step();
    m.optimizer = train_.config.optimizer.type;
    m.scheduler = train_.config.scheduler.type;
    m.states = train_.plan.updates.state_names();
    if (train_.scaler.dynamic()) m.loss_scaler = record_of(train_.scaler.state());
    m.config = zero::describe(train_.config);
    m.equality = equality_terms();
    for (int a = 0; a < axis_count; ++a) {
      const auto axis = static_cast<Axis>(a);
      m.grid[name_of(axis)] = train_.plan.grid.size(axis);
    }
    const Model& whole = layout_.whole();
    for (int p = 0; p < std::ssize(whole.params); ++p) m.parameters.push_back(layout_.parameter(p));
    for (int u = 0; u < std::ssize(whole.units); ++u)
      for (const int p : whole.borrowed(u)) m.parameters[p].used_by.push_back(whole.units[u].name);
    if (trainable_only) {
      train_.refuse_in_stages("SaveOptions::trainable_only", "save all parameters");
      const auto left_out = [&](int param) { return !m.parameters[param].trainable; };
      const std::vector<std::uint64_t> digests = whole_digests(left_out);
      for (int p = 0; p < std::ssize(digests); ++p)
        if (left_out(p)) m.parameters[p].left_out = {0, digests[p]};
    }
    for (ManifestParameter& buffer : layout_.buffers()) m.parameters.push_back(std::move(buffer));
    return m;
  }

  std::vector<ElementRange> ranges_of(int rank, bool trainable_only) const override {
    return layout_.ranges_of(rank, trainable_only);
  }
  std::vector<ElementRange> needed_ranges() const override { return layout_.own_ranges(); }

  void read(const ElementRange& range, std::span<std::byte> out) const override {
    if (const int buffer = buffer_of(range.parameter); buffer >= 0) {
      std::ranges::copy(train_.buffers.read(buffer), out.begin());
      return;
    }
    const std::int64_t begin = offset_of(range);
    train_.store->read(array_of(range), begin, begin + range.count, out.data());
  }

  std::span<const std::byte> on_device(const ElementRange& range) const override {
    const ArrayId array = array_of(range);
    const std::int64_t begin = offset_of(range);
    const std::int64_t end =
        std::clamp(train_.store->end_in_memory(array), begin, begin + range.count);
    if (begin == end) return {};
    return {train_.store->address(array, begin),
            static_cast<std::size_t>((end - begin) * size_of(train_.store->dtype_of(array)))};
  }

  int group_count() const override { return static_cast<int>(train_.layout().flat_units.size()); }

  int group_of(int parameter) const override {
    const int own = buffer_of(parameter) < 0 ? layout_.in_own(parameter) : -1;
    return own >= 0 && train_.param(own).options.trainable ? train_.place(own).flat_unit : -1;
  }

  bool has_values() const override {
    return std::ranges::find(train_.has_values, char{1}) != train_.has_values.end();
  }

  void check(const std::string& path, const Manifest& saved) override {
    check_frozen(path, saved);
    check_batch(path, saved);
    check_group(path, saved);
    scaler_.reset();
    if (train_.scaler.dynamic() && !saved.loss_scaler.empty())
      scaler_ = scaler_state_from(path, saved.loss_scaler);
  }

  // Buffers are not checked: a mask may hold infinity.
  void check_values(const std::string& file, const ElementRange& range, std::string_view dtype,
                    std::span<const std::byte> bytes) const override {
    if (buffer_of(range.parameter) >= 0 || train_.config.zero_core.allow_non_finite_weights) return;
    const DType stored = checkpoint::parameter_dtype(dtype).value();
    if (stored == DType::uint8) return;
    const std::string name =
        (range.kind > 0 ? train_.plan.updates.state_names()[range.kind - 1] + " of " : "") +
        layout_.whole().params[range.parameter].name;
    std::array<float, 1 << 12> values;
    for (std::int64_t done = 0; done < range.count; done += std::ssize(values)) {
      const auto part = std::span(values).first(std::min(range.count - done, std::ssize(values)));
      optim::cast(bytes.data() + done * size_of(stored), stored, part.data(), DType::fp32,
                  std::ssize(part));
      train_.refuse_non_finite(file, {name, {}, range.begin + done, part});
    }
  }

  void write(const ElementRange& range, std::string_view stored,
             std::span<const std::byte> bytes) override {
    if (const int buffer = buffer_of(range.parameter); buffer >= 0)
      return write_buffer(buffer, range, stored, bytes);
    const ArrayId array = array_of(range);
    const auto write = [&](const ArrayId& to) {
      train_.store->write(to, offset_of(range), checkpoint::parameter_dtype(stored).value(), bytes);
    };
    if (!train_.arrays.segment(array).is_parameter(array.kind)) write(array);
    if (range.kind == 0) write({array, ArrayKind::parameter_shard});
  }

  void adopt(const Manifest& saved) override {
    for (const SegmentId& id : train_.layout().segments()) {
      spread_parameters(train_, id);
      spread_states(train_, id);
    }
    train_.step = saved.step;
    train_.applied_steps = saved.applied_steps;
    train_.skipped_in_a_row = saved.skipped_in_a_row;
    samples_before_ = saved.samples;
    samples_before_step_ = saved.step;
    std::ranges::fill(train_.has_values, char{1});
    train_.replicas_checked = false;
    if (scaler_) train_.scaler.restore(*scaler_);
  }

 private:
  std::map<std::string, std::string> equality_terms() const {
    Device& device = train_.runtime.device();
    const bool ordered = device.is_host() || train_.config.zero_core.deterministic;
    std::map<std::string, std::string> terms{
        {"micro_batch", std::to_string(train_.plan.batch.micro)},
        {"threads", std::to_string(train_.runtime.pool().threads())},
        {"cpu", cpu_type()},
        {"device", device.kind()},
        {"sums", ordered ? "in rank order" : "of NCCL"},
        {"compute_dtype", name_of(train_.policy().precision.compute)},
        {"seed", std::to_string(train_.config.seed)},
        {"communication_data_type", name_of(train_.policy().precision.wire)},
        {"grad_accum_dtype", name_of(train_.policy().precision.accumulation)},
        {"master_dtype", name_of(train_.policy().precision.master)},
        {"state_dtype", name_of(train_.policy().precision.state)}};
    terms.merge(train_.plan.summation_terms());
    if (!train_.plan.rank_independent()) {
      terms["reduce_group_size"] = comm::text_of(train_.ranks.terms().reduce_groups);
      terms["layout_hash"] = checkpoint::Digest{0, train_.plan.layout.hash}.hex().substr(16);
    }
    return terms;
  }

  // A batch that elasticity chose depends on the number of ranks at the first start.
  void check_batch(const std::string& path, const Manifest& saved) const {
    const Batch& batch = train_.plan.batch;
    if (!train_.plan.rank_independent() || !train_.config.batch.elasticity.enabled) return;
    const checkpoint::KeptBatch own{batch.micro, batch.micro_batches};
    const auto kept = checkpoint::kept_batch(saved);
    if (kept && *kept != own)
      throw ConfigError(path + ": a step of it has " + text_of(*kept) + ", and elasticity chose " +
                        text_of(own) + " for " + std::to_string(train_.rank_count()) +
                        " ranks; call zero::keep_batch() before the Engine is made");
  }

  void check_group(const std::string& path, const Manifest& saved) const {
    if (!train_.plan.rank_independent()) return;
    const std::string own = std::to_string(train_.policy().fold->group);
    const auto kept = checkpoint::kept_group(saved);
    if (kept && std::to_string(*kept) != own)
      throw ConfigError(path + ": zero_core.rank_independent_group is " + own +
                        ", and the run has summed gradients with " + std::to_string(*kept) +
                        ", which is part of its bits: set the key to that value");
  }

  // As value_digests(), over all parts of each parameter.
  std::vector<std::uint64_t> whole_digests(const std::function<bool(int param)>& wanted) const {
    return value_digests(train_, train_.everyone(), [&](int p) {
      return wanted(p) && train_.policy().counts(train_.layout().segment(train_.place(p)));
    });
  }

  const std::vector<BufferDeclaration>& buffers() const { return train_.plan.buffers.all; }

  // Returns a buffer's index; -1 for a parameter.
  int buffer_of(int parameter) const {
    return std::max(parameter - static_cast<int>(layout_.whole().params.size()), -1);
  }

  ArrayId array_of(const ElementRange& range) const {
    const int own = layout_.in_own(range.parameter);
    const Place& place = train_.place(own);
    if (range.kind > 0) return {place, ArrayKind::state, range.kind - 1};
    const bool trainable = train_.param(own).options.trainable;
    return {place, trainable ? ArrayKind::master : ArrayKind::parameter_shard};
  }

  // Start of the range, in elements from the start of the segment.
  std::int64_t offset_of(const ElementRange& range) const {
    const int own = layout_.in_own(range.parameter);
    return train_.place(own).offset + range.begin - train_.begin_of_own_part(own);
  }

  void require_base(const std::string& path, int param) const {
    if (!train_.has_values[param])
      throw LoadError(path + " was saved without its frozen parameters, and " +
                      train_.param(param).name +
                      " has no values: call Engine::load_weights() for them before resume()");
  }

  // Frozen parameters that the checkpoint omits must have the values that it was trained with.
  void check_frozen(const std::string& path, const Manifest& saved) const {
    std::vector<const ManifestParameter*> left_out(train_.model.params.size(), nullptr);
    for (const ManifestParameter& parameter : saved.parameters) {
      const int p = parameter.left_out ? train_.model.find(parameter.name) : -1;
      if (p < 0) continue;
      left_out[p] = &parameter;
      require_base(path, p);
    }
    for (int p = 0; saved.without_frozen && p < std::ssize(left_out); ++p)
      if (!train_.param(p).options.trainable &&
          std::ranges::find(saved.parameters, train_.param(p).name, &ManifestParameter::name) ==
              saved.parameters.end())
        require_base(path, p);
    if (std::ranges::any_of(saved.parameters, [](const ManifestParameter& parameter) {
          return parameter.left_out.has_value();
        }))
      train_.refuse_in_stages(path + ", saved without its frozen parameters,",
                              "resume it on one stage");
    if (std::ranges::count(left_out, nullptr) == std::ssize(left_out)) return;
    const std::vector<std::uint64_t> digests =
        whole_digests([&](int p) { return left_out[p] != nullptr; });
    for (int p = 0; p < std::ssize(left_out); ++p) {
      if (left_out[p] == nullptr) continue;
      const bool comparable = left_out[p]->dtype == layout_.parameter(layout_.in_whole(p)).dtype;
      if (comparable && checkpoint::Digest{0, digests[p]} != *left_out[p]->left_out)
        throw LoadError(path + " was trained over other values of the frozen parameter " +
                        left_out[p]->name + " than this run has: load those first");
    }
  }

  // Another precision is converted, as for parameters.
  void write_buffer(int buffer, const ElementRange& range, std::string_view stored,
                    std::span<const std::byte> bytes) {
    if (buffers()[buffer].dtype == stored) return train_.buffers.write(buffer, range.begin, bytes);
    const DType from = checkpoint::dtype_named(stored).value();
    const DType to = checkpoint::dtype_named(buffers()[buffer].dtype).value();
    std::vector<float> values(range.count);
    std::vector<std::byte> converted(range.count * size_of(to));
    optim::cast(bytes.data(), from, values.data(), DType::fp32, range.count);
    optim::cast(values.data(), DType::fp32, converted.data(), to, range.count);
    train_.buffers.write(buffer, range.begin, converted);
  }

  TrainState& train_;
  const SavedLayout layout_;
  // Samples seen before this step, by the resumed training run.
  std::int64_t samples_before_ = 0, samples_before_step_ = 0;
  std::optional<optim::LossScalerState> scaler_;  // from the checked checkpoint
};

}  // namespace

std::unique_ptr<checkpoint::Snapshot> snapshot_of(TrainState& train) {
  return std::make_unique<TrainSnapshot>(train);
}

}  // namespace zero::detail
