#include "zero/run/updates.h"

#include <algorithm>

#include "optim/orthogonalize.h"

namespace zero::detail {

using optim::DeviceKernels;
using optim::DeviceUpdate;

namespace {

// Calls each(matrix, range, directions) for this rank's ranges of the batch, in the order in which
// they are sent.
template <class Each>
void for_directions(const EnginePlan& plan, const MatrixBatch& batch, const Range& chunk,
                    float* directions, const Each& each) {
  for (int owner = 0; owner < plan.matrices.members(); ++owner)
    for (const PlannedMatrix& matrix : batch.matrices) {
      const Range own = intersection(matrix.range, chunk);
      if (matrix.owner != owner || own.empty()) continue;
      each(matrix, own, directions);
      directions += own.count();
    }
}

}  // namespace

Updates::Updates(const Parts& parts) : parts_(parts) {
  for (const Chunk& chunk : parts_.plan.inputs.chunks)
    list_launches(chunk, launches_.emplace_back());
  constexpr MemoryCategory category = MemoryCategory::update_staging;
  requests_.add(category, sizeof(optim::NormSum), matrix_norm_);
  requests_.add(category, std::ssize(ranges_) * sizeof(optim::GroupRange), device_ranges_);
  requests_.add(category, std::ssize(ranges_) * sizeof(float), steps_);
}

void Updates::list_launches(const Chunk& chunk, std::vector<Launch>& launches) {
  const SegmentBuffers& buffers = parts_.state.segment(chunk);
  for (GroupRange run : buffers.runs) {
    static_cast<Range&>(run) = intersection(run, buffers.range_of(chunk));
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

// A range of a rule that sees tensor norms reaches from one parameter to the next; padding lies
// between them.
void Updates::add_ranges(const Launch& launch, const Segment& segment, const GroupRange& run) {
  const std::int64_t origin = launch.range.begin;
  if (optim::rule_of(launch.rule).scope != optim::UpdateScope::tensor_norms) {
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
    const SegmentBuffers& buffers = parts_.state.segment(chunk);
    for (const GroupRange& run : buffers.runs) {
      const Range range = intersection(run, buffers.range_of(chunk));
      const float initial = optim::initial_state(groups.group(run.group).options);
      if (initial == 0 || range.empty()) continue;
      const std::vector<float> values(range.count(), initial);
      for (const int state : groups.group(run.group).states)
        store.write({chunk, ArrayKind::state, state}, range.begin, DType::fp32,
                    std::as_bytes(std::span(values)));
    }
  }
}

DeviceUpdate Updates::update_of(const StateStore& store, int chunk, const Range& range, int group,
                                const float* factors) const {
  DeviceUpdate update = store.update_of(chunk, range, parts_.plan.updates.group(group).states);
  update.factors = factors;
  update.groups = parts_.agreement.groups();
  update.group = group;
  return update;
}

DeviceUpdate Updates::update_of(const StateStore& store, int chunk, const Launch& launch) const {
  DeviceUpdate update =
      update_of(store, chunk, launch.range, launch.group, parts_.agreement.factors());
  update.ranges = device_ranges_ + launch.first_range;
  update.range_count = launch.range_count;
  update.steps = steps_ + launch.first_range;
  return update;
}

template <class Work>
void Updates::queue_measured(const StateStore& store, const Work& work) {
  for (int chunk = 0; chunk < std::ssize(launches_); ++chunk)
    for (const Launch& launch : launches_[chunk])
      if (optim::rule_of(launch.rule).scope == optim::UpdateScope::tensor_norms)
        queue([work, rule = launch.rule, update = update_of(store, chunk, launch)](
                  DeviceKernels& kernels, Stream stream) { work(kernels, rule, update, stream); });
}

void Updates::measure(const StateStore& store) {
  const optim::StepDecision* decision = parts_.agreement.decision();
  optim::TensorSums* sums = tensor_sums();
  queue_zeros(parts_.runtime, sums, parts_.state.policy().norm_words * size_of(DType::int64));
  queue_measured(store,
                 [=](DeviceKernels& kernels, optim::RuleKind rule, const DeviceUpdate& update,
                     Stream stream) { kernels.measure(rule, update, sums, decision, stream); });
  add_up_tensor_sums();
  queue_measured(store, [=](DeviceKernels& kernels, optim::RuleKind, const DeviceUpdate& update,
                            Stream stream) { kernels.take_steps(update, sums, decision, stream); });
}

void Updates::add_up_tensor_sums() {
  const StatePolicy& policy = parts_.state.policy();
  if (parts_.plan.grid.ranks > 1 && policy.optimizer_sharded())
    parts_.runtime.cross([&] {
      parts_.update_group.communicate_control(
          [this, words = policy.norm_words](comm::Communicator& communicator, Stream stream) {
            communicator.set_subject("the norms of tensors");
            communicator.all_reduce(tensor_sums(), words, DType::int64, stream);
          });
    });
  if (Ranks* model_parallel = parts_.ranks.model_parallel()) add_up_split_tensors(*model_parallel);
}

// Of parameters that are split over the ranks of the model-parallel group, which needs CPU ranks.
void Updates::add_up_split_tensors(Ranks& model_parallel) {
  const Model& model = *parts_.plan.inputs.model;
  std::vector<optim::TensorSums> sums;
  for (int p = 0; p < std::ssize(model.params); ++p)
    if (model.params[p].options.split) sums.push_back(tensor_sums()[p]);
  model_parallel.exchange("the norms of tensors", [&](comm::Communicator& communicator) {
    communicator.all_reduce(sums.data(), std::ssize(sums) * optim::tensor_sum_words, DType::int64);
  });
  auto sum = sums.begin();
  for (int p = 0; p < std::ssize(model.params); ++p)
    if (model.params[p].options.split) tensor_sums()[p] = *sum++;
}

void Updates::update(int chunk, const StateStore& store, Transfers& transfers) {
  for (const Launch& launch : launches_[chunk])
    queue([rule = launch.rule, update = update_of(store, chunk, launch),
           decision = parts_.agreement.decision()](DeviceKernels& kernels, Stream stream) {
      kernels.update(rule, update, decision, stream);
    });
  update_matrices(chunk, store, transfers);
}

void Updates::update_on_host(int chunk, const StateStore& store, const StepFactors& factors,
                             const optim::StepDecision& decision) const {
  for (const Launch& launch : launches_[chunk]) {
    DeviceUpdate update = update_of(store, chunk, launch.range, launch.group, factors.data());
    update.ranges = ranges_.data() + launch.first_range;
    update.range_count = launch.range_count;
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

// Directions of a segment's matrices travel to the ranks that own them, are made orthogonal there,
// and travel back. All is queued whether the step is applied or not: a step that is skipped moves
// directions that nobody takes.
void Updates::update_matrices(int number, const StateStore& store, Transfers& transfers) {
  const EnginePlan& plan = parts_.plan;
  const ModelState& state = parts_.state;
  const Chunk& chunk = plan.inputs.chunks[number];
  const Range own = state.segment(chunk).range_of(chunk);
  const optim::StepDecision* decision = parts_.agreement.decision();
  const float* factors = parts_.agreement.factors();
  const bool sharded = plan.matrices.sharded();
  const auto travel = [&](const float* from, float* to, const comm::PairCounts& counts) {
    parts_.runtime.cross([&] {
      transfers.queue_for_update(
          chunk.flat_unit, [from, to, &counts](comm::Communicator& communicator, Stream stream) {
            communicator.all_to_all(from, to, counts, DType::fp32, stream);
          });
    });
  };
  for (const MatrixBatch& batch : plan.matrices.batches(chunk)) {
    for_directions(plan, batch, own, state.directions(),
                   [&](const PlannedMatrix& matrix, const Range& range, float* directions) {
                     queue([update = update_of(store, number, range, matrix.group, factors),
                            directions, decision](DeviceKernels& kernels, Stream stream) {
                       kernels.direct(update, directions, decision, stream);
                     });
                   });
    if (sharded) travel(state.directions(), state.matrices(), batch.counts);
    float* next = sharded ? state.matrices() : state.directions();
    for (const PlannedMatrix& matrix : batch.matrices) {
      if (matrix.owner != plan.matrices.member(plan.policy.rank)) continue;
      orthogonalize(matrix, next);
      next += matrix.range.count();
    }
    if (sharded) travel(state.matrices(), state.directions(), batch.way_back);
    for_directions(plan, batch, own, state.directions(),
                   [&](const PlannedMatrix& matrix, const Range& range, const float* directions) {
                     DeviceUpdate update = update_of(store, number, range, matrix.group, factors);
                     update.gradient = directions;
                     update.gradient_dtype = DType::fp32;
                     queue([update, scale = matrix.shape.scale, decision](DeviceKernels& kernels,
                                                                          Stream stream) {
                       kernels.step_along(update, scale, decision, stream);
                     });
                   });
  }
}

}  // namespace zero::detail
