#include "zero/run/updater.h"

#include <algorithm>
#include <array>

namespace zero::detail {

namespace {

// Elements that a thread works on at a time, few enough to stay in cache.
constexpr std::int64_t grain_elements = 1 << 14;
// Elements of directions that are measured and not stored.
constexpr std::int64_t block_elements = 4096;
constexpr int parameter_norm = 0, direction_norm = 1;

using optim::UpdateScope;

std::int64_t* words_of(std::int64_t* words, int param, int which) {
  return words + (2 * param + which) * words_per_norm;
}

void add_to(const optim::NormBins& bins, std::int64_t* words) {
  for (std::size_t k = 0; k < bins.limbs.size(); ++k) words[k] += bins.limbs[k];
  words[bins.limbs.size()] += bins.non_finite;
}

}  // namespace

Updater::Updater(RuntimeCore& runtime, Ranks& ranks, const EnginePlan& plan, ModelState& state,
                 StateStore& store, Exchange exchange)
    : runtime_(runtime),
      ranks_(ranks),
      model_(*plan.inputs.model),
      plan_(plan),
      state_(state),
      store_(store),
      exchange_(std::move(exchange)) {}

void Updater::fill_initial_states() {
  for (const Chunk& chunk : plan_.inputs.chunks) {
    const SegmentBuffers& buffers = state_.segment(chunk);
    for (const GroupRange& run : buffers.runs) {
      const Range range = intersection(run, buffers.range_of(chunk));
      const float initial = rule_of(run.group).initial_state();
      if (initial == 0 || range.empty()) continue;
      const std::vector<float> values(range.count(), initial);
      std::vector<std::byte> stored(range.count() * size_of(buffers.state_dtype));
      optim::cast(values.data(), DType::fp32, stored.data(), buffers.state_dtype, range.count());
      for (const int state : plan_.updates.group(run.group).states)
        store_.write({chunk, ArrayKind::state, state}, range.begin, stored);
    }
  }
}

template <class Each>
void Updater::in_fp32(const Part& part, const Each& each) const {
  // Master weights and states, as they are or in the staging.
  const auto call = [&each](const UpdateView& view, const float* directions, float* master,
                            std::span<float* const> states, std::int64_t at) {
    optim::UpdateSpans spans{view.count, view.gradient,  view.gradient_dtype, master,
                             states,     view.parameter, view.dtype};
    if (directions != nullptr) spans.gradient = directions;
    if (directions != nullptr) spans.gradient_dtype = DType::fp32;
    each(spans, at);
  };
  if (const UpdateView view = view_of(part); view.state_in_fp32()) {
    std::array<float*, most_states> states{};
    for (std::size_t i = 0; i < view.state_count; ++i)
      states[i] = reinterpret_cast<float*>(view.states[i]);
    return call(view, part.directions, reinterpret_cast<float*>(view.master),
                std::span(states).first(view.state_count), 0);
  }
  for (std::int64_t at = 0; at < part.range.count(); at += Fp32Staging::elements) {
    const Part block = part.part(at, std::min(part.range.count(), at + Fp32Staging::elements));
    const UpdateView view = view_of(block);
    Fp32Staging staging(view);
    call(view, block.directions, staging.master(), staging.states(), at);
    staging.store();
  }
}

void Updater::update_part(const Part& part, const optim::StepScalars& scalars) {
  runtime_.pool().for_ranges(
      part.range.count(), grain_elements, [&](std::int64_t begin, std::int64_t end) {
        in_fp32(part.part(begin, end), [&](const optim::UpdateSpans& spans, std::int64_t) {
          rule_of(part.group).update(scalars, spans);
        });
      });
}

void Updater::direct(const Part& part, const optim::StepScalars& scalars, float* directions) const {
  in_fp32(part, [&](const optim::UpdateSpans& spans, std::int64_t at) {
    rule_of(part.group).direction(scalars, spans, directions + at);
  });
}

void Updater::for_measured(const ChunkView& chunk,
                           const std::function<void(const Part&, int)>& each) const {
  const Segment& segment = plan_.layout.segment(chunk.id);
  for (const GroupRange& run : chunk.buffers->runs) {
    if (rule_of(run.group).scope() != UpdateScope::tensor_norms) continue;
    for (const ParamRange& param : params_in(model_, segment, intersection(run, chunk.range)))
      each({chunk, run.group, param.range()}, param.param);
  }
}

void Updater::measure_part(const Part& part, const optim::StepScalars& scalars, int param) {
  struct Sums {
    optim::NormBins parameter, direction;
  };
  std::vector<Sums> sums(runtime_.pool().threads());
  const std::int64_t threads = std::ssize(sums), count = part.range.count();
  runtime_.pool().run([&](int thread) {
    const std::int64_t end = count * (thread + 1) / threads;
    for (std::int64_t at = count * thread / threads; at < end; at += block_elements) {
      float directions[block_elements];
      const Part block = part.part(at, std::min(end, at + block_elements));
      const UpdateView view = view_of(block);
      optim::accumulate_norm(view.master, view.master_dtype, view.count, sums[thread].parameter);
      direct(block, scalars, directions);
      optim::accumulate_norm(directions, DType::fp32, view.count, sums[thread].direction);
    }
  });
  for (const Sums& own : sums) {
    add_to(own.parameter, words_of(state_.tensor_norms(), param, parameter_norm));
    add_to(own.direction, words_of(state_.tensor_norms(), param, direction_norm));
  }
}

void Updater::measure(const UpdateTerms& terms) {
  std::int64_t* words = state_.tensor_norms();
  const std::int64_t count = state_.policy().norm_words;
  std::fill(words, words + count, std::int64_t{0});
  for (int c = 0; c < std::ssize(plan_.inputs.chunks); ++c)
    for_measured(store_.view(c), [&](const Part& part, int param) {
      measure_part(part, scalars(part.group, terms), param);
    });
  if (plan_.layout.ranks > 1 && state_.policy().optimizer_sharded)
    ranks_.exchange("the norms of tensors", [&](comm::Communicator& communicator) {
      communicator.all_reduce(words, count, DType::int64);
    });
  if (Ranks* model_parallel = ranks_.model_parallel()) add_norms_of_parts(*model_parallel);
}

// For parameters that are split over the ranks of the model-parallel group.
void Updater::add_norms_of_parts(Ranks& model_parallel) {
  constexpr std::ptrdiff_t of_param = 2 * words_per_norm;
  std::vector<std::int64_t> sums;
  const auto for_parts = [&](const auto& each) {
    for (int p = 0; p < std::ssize(model_.params); ++p)
      if (model_.params[p].options.split) each(words_of(state_.tensor_norms(), p, parameter_norm));
  };
  for_parts([&](const std::int64_t* words) { sums.insert(sums.end(), words, words + of_param); });
  model_parallel.exchange("the norms of tensors", [&](comm::Communicator& communicator) {
    communicator.all_reduce(sums.data(), std::ssize(sums), DType::int64);
  });
  auto sum = sums.begin();
  for_parts([&](std::int64_t* words) {
    std::copy_n(sum, of_param, words);
    sum += of_param;
  });
}

double Updater::tensor_norm(int param, int which) const {
  const std::int64_t* words = words_of(state_.tensor_norms(), param, which);
  optim::NormBins bins;
  std::copy_n(words, bins.limbs.size(), bins.limbs.begin());
  bins.non_finite = words[bins.limbs.size()];
  return bins.norm();
}

void Updater::update(int number, const UpdateTerms& terms) {
  const ChunkView chunk = store_.view(number);
  for (const GroupRange& run : chunk.buffers->runs) {
    const Range range = intersection(run, chunk.range);
    if (rule_of(run.group).scope() == UpdateScope::elements && !range.empty())
      update_part({chunk, run.group, range}, scalars(run.group, terms));
  }
  for_measured(chunk, [&](const Part& part, int param) {
    optim::StepScalars own = scalars(part.group, terms);
    own.step_scale =
        rule_of(part.group)
            .step_scale(tensor_norm(param, parameter_norm), tensor_norm(param, direction_norm));
    update_part(part, own);
  });
  update_matrices(plan_, state_, chunk, matrix_steps(chunk, terms));
}

MatrixSteps Updater::matrix_steps(const ChunkView& chunk, const UpdateTerms& terms) {
  MatrixSteps steps;
  steps.direct = [&](const PlannedMatrix& matrix, const Range& range, float* directions) {
    const Part part{chunk, matrix.group, range};
    const optim::StepScalars own = scalars(matrix.group, terms);
    runtime_.pool().for_ranges(range.count(), grain_elements,
                               [&](std::int64_t begin, std::int64_t end) {
                                 direct(part.part(begin, end), own, directions + begin);
                               });
  };
  steps.travel = [&](const float* from, float* to, const comm::PairCounts& counts) {
    exchange_(chunk.id.flat_unit, [&](comm::Communicator& communicator, Stream stream) {
      communicator.all_to_all(from, to, counts, DType::fp32, stream);
    });
  };
  steps.orthogonalize = [&](const PlannedMatrix& matrix, float* values) {
    rule_of(matrix.group)
        .orthogonalize(matrix.shape, values, state_.matrix_scratch(), runtime_.pool());
  };
  steps.step = [&](const PlannedMatrix& matrix, const Range& range, const float* directions) {
    optim::StepScalars own = scalars(matrix.group, terms);
    own.step_scale = matrix.shape.scale;
    update_part({chunk, matrix.group, range, directions}, own);
  };
  return steps;
}

}  // namespace zero::detail
