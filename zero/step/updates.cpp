#include "zero/step/updates.h"

#include <algorithm>

#include "optim/orthogonalize.h"

namespace zero::detail {

using optim::DeviceKernels;
using optim::DeviceUpdate;

namespace {

bool is_adafactor(optim::RuleKind rule) {
  return rule == optim::RuleKind::adafactor || rule == optim::RuleKind::adafactor_matrix;
}

}  // namespace

Updates::Updates(const Parts& parts) : parts_(parts), factored_(parts.plan, parts.buffers) {
  for (const Chunk& chunk : parts_.plan.inputs.chunks)
    list_launches(chunk, launches_.emplace_back());
  constexpr MemoryCategory category = MemoryCategory::update_staging;
  requests_.add(category, sizeof(optim::NormSum), matrix_norm_);
  requests_.add(category, std::ssize(ranges_) * sizeof(optim::GroupRange), device_ranges_);
  requests_.add(category, std::ssize(ranges_) * sizeof(float), steps_);
  const bool any = std::ranges::any_of(parts_.plan.updates.groups(), [](const UpdateGroup& group) {
    return is_adafactor(group.rule->kind);
  });
  if (!any) return;
  requests_.add(category, std::ssize(ranges_) * sizeof(optim::TensorRange), device_tensors_);
  requests_.add(category, std::ssize(ranges_) * sizeof(float), decays_);
  factored_.request(requests_);
}

void Updates::list_launches(const Chunk& chunk, std::vector<Launch>& launches) {
  const SegmentArrays& buffers = parts_.state.segment(chunk);
  for (GroupRange run : buffers.groups->runs) {
    static_cast<Range&>(run) = intersection(run, chunk.range_in(buffers.updated));
    const optim::UpdateRule& rule = *parts_.plan.updates.group(run.group).rule;
    if (run.empty() || rule.scope == optim::UpdateScope::whole_matrices) continue;
    const bool follows = !launches.empty() && launches.back().range.end == run.begin;
    if (!follows || launches.back().rule != rule.kind)
      launches.push_back({rule.kind, run.group, run, static_cast<int>(ranges_.size())});
    Launch& launch = launches.back();
    launch.range.end = run.end;
    add_ranges(launch, parts_.plan.layout.segment(chunk), run);
    launch.range_count = static_cast<int>(ranges_.size()) - launch.first_range;
  }
}

// A range of a rule that sees tensor norms extends from one parameter to the next; padding is in
// between.
void Updates::add_ranges(const Launch& launch, const Segment& segment, const GroupRange& run) {
  const std::int64_t origin = launch.range.begin;
  if (!optim::sees_norms(optim::rule_of(launch.rule).scope)) {
    ranges_.push_back({run.end - origin, run.group, 0, run.end - origin});
    return;
  }
  const auto params = params_in(*parts_.plan.inputs.model, segment, run);
  if (params.empty()) ranges_.push_back({run.end - origin, run.group, 0, run.begin - origin});
  for (std::size_t p = 0; p < params.size(); ++p) {
    const std::int64_t end = p + 1 < params.size() ? params[p + 1].segment_begin : run.end;
    ranges_.push_back({end - origin, run.group, params[p].param, params[p].range().end - origin});
  }
}

void Updates::fill_initial_states(StateStore& store) const {
  const UpdateGroups& groups = parts_.plan.updates;
  for (const Chunk& chunk : parts_.plan.inputs.chunks) {
    const SegmentArrays& buffers = parts_.state.segment(chunk);
    for (const GroupRange& run : buffers.groups->runs) {
      const Range range = intersection(run, chunk.range_in(buffers.updated));
      const float initial = optim::initial_state(groups.group(run.group).options);
      if (initial == 0 || range.empty()) continue;
      const std::vector<float> values(range.count(), initial);
      for (const int state : groups.group(run.group).rule_states())
        store.write({chunk, ArrayKind::state, state}, range.begin, DType::fp32,
                    std::as_bytes(std::span(values)));
    }
  }
}

DeviceUpdate Updates::update_of(const StateStore& store, int chunk, const Range& range,
                                int group) const {
  DeviceUpdate update =
      store.update_of(chunk, range, parts_.plan.updates.group(group).rule_states());
  update.groups = parts_.agreement.groups();
  update.group = group;
  return update;
}

// Sorted by owner, as directions are sent.
std::vector<Updates::Direction> Updates::directions_of(const StateStore& store, int number,
                                                       const MatrixBatch& batch) const {
  const EnginePlan& plan = parts_.plan;
  const Chunk& chunk = plan.inputs.chunks[number];
  std::vector<Direction> directions;
  float* values = parts_.state.directions();
  for (int owner = 0; owner < plan.matrices.members(); ++owner)
    for (const PlannedMatrix& matrix : batch.matrices) {
      const Range own =
          intersection(matrix.range, chunk.range_in(parts_.state.segment(chunk).updated));
      if (matrix.owner != owner || own.empty()) continue;
      directions.push_back(
          {&matrix, own.begin, update_of(store, number, own, matrix.group), values});
      values += own.count();
    }
  return directions;
}

// Ranges of a tensor start at elements of the tensor, since both start at multiples of 128.
void Updates::write_tensors() {
  const Model& model = *parts_.plan.inputs.model;
  for (const Chunk& chunk : parts_.plan.inputs.chunks)
    for (const Launch& launch : launches_[&chunk - parts_.plan.inputs.chunks.data()])
      for (int r = 0; r < launch.range_count; ++r) {
        const optim::GroupRange& range = ranges_[launch.first_range + r];
        const std::int64_t begin =
            launch.range.begin + (r == 0 ? 0 : ranges_[launch.first_range + r - 1].end);
        optim::TensorRange& tensor = tensors_.emplace_back();
        if (!is_adafactor(launch.rule) || launch.range.begin + range.filled == begin) continue;
        const int param = static_cast<int>(range.tensor);
        tensor = {begin - parts_.plan.layout.place_of_param[param].offset,
                  model.params[param].elements, factored_.of_param(param)};
      }
  copy_and_wait(parts_.runtime, device_tensors_, tensors_.data(),
                std::ssize(tensors_) * sizeof(optim::TensorRange));
}

void Updates::prepare(StateStore& store) {
  fill_initial_states(store);
  factored_.place();
  if (device_tensors_ != nullptr && !ranges_.empty()) write_tensors();
  for (int chunk = 0; chunk < std::ssize(launches_); ++chunk) {
    for (Launch& launch : launches_[chunk]) {
      launch.update = update_of(store, chunk, launch.range, launch.group);
      launch.update.ranges = device_ranges_ + launch.first_range;
      launch.update.range_count = launch.range_count;
      launch.update.steps = steps_ + launch.first_range;
      if (!is_adafactor(launch.rule)) continue;
      launch.update.tensors = device_tensors_ + launch.first_range;
      launch.update.decays = decays_ + launch.first_range;
    }
    auto& batches = directions_.emplace_back();
    for (const MatrixBatch& batch : parts_.plan.matrices.batches(parts_.plan.inputs.chunks[chunk]))
      batches.push_back(directions_of(store, chunk, batch));
  }
}

template <class Work>
void Updates::queue_measured(const Work& work) {
  for (const std::vector<Launch>& launches : launches_)
    for (const Launch& launch : launches)
      if (optim::sees_norms(optim::rule_of(launch.rule).scope))
        queue([work, rule = launch.rule, update = with_factors(launch.update)](
                  DeviceKernels& kernels, Stream stream) { work(kernels, rule, update, stream); });
}

void Updates::update_moments() {
  for (const SegmentId& id : parts_.plan.layout.segments())
    if (const auto& matrices = factored_.of_segment(id); !matrices.empty())
      update_moments(id, matrices);
}

// All ranks update the moments of all matrices, also of matrices without an element on the rank.
void Updates::update_moments(const SegmentId& id,
                             const std::vector<FactoredMatrices::Member>& matrices) {
  const optim::StepDecision* decision = parts_.scalars.decision();
  constexpr std::int64_t width = sizeof(optim::NormSum);
  std::int64_t sums = 0;
  for (const FactoredMatrices::Member& member : matrices) sums += member.sums();
  queue_zeros(parts_.runtime, factored_.sums(), sums * width);
  for (int chunk = 0; chunk < std::ssize(launches_); ++chunk)
    for (const Launch& launch : launches_[chunk])
      if (parts_.plan.inputs.chunks[chunk] == id &&
          launch.rule == optim::RuleKind::adafactor_matrix)
        queue([update = with_factors(launch.update), decision](DeviceKernels& kernels,
                                                               Stream stream) {
          kernels.add_factor_sums(update, decision, stream);
        });
  if (parts_.plan.splits_updates())
    add_up(parts_.update_group, "the squares of rows and columns", factored_.sums(),
           sums * width / size_of(DType::int64));
  for (const FactoredMatrices::Member& member : matrices) {
    DeviceUpdate update;
    update.groups = parts_.agreement.groups();
    update.group = parts_.plan.updates.group_of_param()[member.param];
    queue([update = with_factors(update), matrix = member.matrix, decision](DeviceKernels& kernels,
                                                                            Stream stream) {
      kernels.take_factors(update, matrix, decision, stream);
    });
  }
}

void Updates::measure() {
  update_moments();
  const optim::StepDecision* decision = parts_.scalars.decision();
  optim::TensorSums* sums = tensor_sums();
  queue_zeros(parts_.runtime, sums, parts_.plan.updates.norm_words() * size_of(DType::int64));
  queue_measured([=](DeviceKernels& kernels, optim::RuleKind rule, const DeviceUpdate& update,
                     Stream stream) { kernels.measure(rule, update, sums, decision, stream); });
  const std::int64_t words = parts_.plan.updates.norm_words();
  if (parts_.plan.splits_updates())
    add_up(parts_.update_group, "the norms of tensors", sums, words);
  if (parts_.tensor != nullptr) {
    leave_uncounted_sums();
    add_up(*parts_.tensor, "the norms of tensors", sums, words);
  }
  queue_measured([=](DeviceKernels& kernels, optim::RuleKind, const DeviceUpdate& update,
                     Stream stream) { kernels.take_steps(update, sums, decision, stream); });
}

// The first rank of a tensor group adds the sums of parameters that all of its ranks hold.
void Updates::leave_uncounted_sums() {
  const EnginePlan& plan = parts_.plan;
  for (std::size_t p = 0; p < plan.layout.place_of_param.size(); ++p)
    if (!plan.policy.counts(plan.layout.segment(plan.layout.place_of_param[p])))
      queue_zeros(parts_.runtime, tensor_sums() + p, sizeof(optim::TensorSums));
}

void Updates::add_up(Ranks& ranks, std::string_view subject, void* sums, std::int64_t words) {
  parts_.runtime.cross([&] {
    ranks.communicate_control(
        [subject, sums, words](comm::Communicator& communicator, Stream stream) {
          communicator.set_subject(subject);
          communicator.all_reduce(sums, words, DType::int64, stream);
        });
  });
}

void Updates::queue_launches(int chunk, ExecutionStream& stream) {
  for (const Launch& launch : launches_[chunk])
    queue(stream, [rule = launch.rule,
                   update = noting(with_factors(launch.update), chunk, launch.range.begin),
                   decision = parts_.scalars.decision()](DeviceKernels& kernels, Stream on) {
      kernels.update(rule, update, decision, on);
    });
}

void Updates::update(int chunk, Transfers& transfers) {
  queue_launches(chunk, parts_.runtime.compute());
  update_matrices(chunk, transfers);
}

void Updates::update_on_host(int chunk, const StepFactors& factors,
                             const optim::StepDecision& decision) const {
  for (const Launch& launch : launches_[chunk]) {
    DeviceUpdate update = noting(launch.update, chunk, launch.range.begin, true);
    update.factors = factors.data();
    update.ranges = ranges_.data() + launch.first_range;
    parts_.runtime.host_kernels().update(launch.rule, update, &decision, {});
  }
}

void Updates::orthogonalize(const PlannedMatrix& matrix, float* values) {
  const optim::RuleKind rule = parts_.plan.updates.group(matrix.group).rule->kind;
  const optim::DeviceMatrix on_device{matrix.shape, values, parts_.state.matrix_scratch(),
                                      matrix_norm_};
  queue([rule, on_device](DeviceKernels& kernels, Stream stream) {
    optim::orthogonalize(kernels, rule, on_device, stream);
  });
}

// Sends directions of a segment's matrices to the owners, makes these orthogonal there, and sends
// the results back. All is queued even if the step is skipped; then nothing uses the directions.
void Updates::update_matrices(int number, Transfers& transfers) {
  const EnginePlan& plan = parts_.plan;
  const ModelState& state = parts_.state;
  const Chunk& chunk = plan.inputs.chunks[number];
  const optim::StepDecision* decision = parts_.scalars.decision();
  const bool sharded = plan.matrices.sharded();
  const auto travel = [&](const float* from, float* to, const comm::PairCounts& counts) {
    parts_.runtime.cross([&] {
      transfers.queue_for_update(
          chunk.flat_unit, [from, to, &counts](comm::Communicator& communicator, Stream stream) {
            communicator.all_to_all(from, to, counts, DType::fp32, stream);
          });
    });
  };
  auto directions = directions_[number].begin();
  for (const MatrixBatch& batch : plan.matrices.batches(chunk)) {
    for (const Direction& direction : *directions)
      queue([update = with_factors(direction.update), values = direction.values, decision](
                DeviceKernels& kernels, Stream stream) {
        kernels.direct(update, values, decision, stream);
      });
    if (sharded) travel(state.directions(), state.matrices(), batch.counts);
    float* next = sharded ? state.matrices() : state.directions();
    for (const PlannedMatrix& matrix : batch.matrices) {
      if (matrix.owner != plan.matrices.member(plan.policy.rank)) continue;
      orthogonalize(matrix, next);
      next += matrix.range.count();
    }
    if (sharded) travel(state.matrices(), state.directions(), batch.way_back);
    for (const Direction& direction : *directions++) {
      DeviceUpdate update = noting(with_factors(direction.update), number, direction.begin);
      update.gradient = direction.values;
      update.gradient_dtype = DType::fp32;
      queue([update, scale = direction.matrix->shape.scale, decision](DeviceKernels& kernels,
                                                                      Stream stream) {
        kernels.step_along(update, scale, decision, stream);
      });
    }
  }
}

}  // namespace zero::detail
