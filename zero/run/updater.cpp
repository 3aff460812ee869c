#include "zero/run/updater.h"

#include <algorithm>
#include <array>

namespace zero::detail {

namespace {

// The work of one thread at a time, in elements: one pass stays in cache.
constexpr std::int64_t grain_elements = 1 << 14;
// Of directions that are measured and not kept.
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

Updater::Range Updater::Range::part(std::int64_t from, std::int64_t to) const {
  return {view,         buffers,    run,
          begin + from, begin + to, directions == nullptr ? nullptr : directions + from};
}

Updater::OpenChunk Updater::open(int number) const {
  const Chunk& chunk = plan_.inputs.chunks[number];
  return {chunk, store_.view(number), state_.segment(chunk.flat_unit, chunk.segment)};
}

void Updater::fill_initial_states() {
  for (int c = 0; c < static_cast<int>(plan_.inputs.chunks.size()); ++c) {
    const Chunk& chunk = plan_.inputs.chunks[c];
    const SegmentBuffers& buffers = state_.segment(chunk.flat_unit, chunk.segment);
    for (const UpdateRun& run : buffers.runs) {
      const UpdateGroup& group = plan_.updates.group(run.group);
      const float initial = group.rule->initial_state();
      if (initial == 0) continue;
      const std::int64_t first = buffers.update_begin + chunk.begin;
      const std::int64_t begin = std::max(run.begin, first);
      const std::int64_t end = std::min(run.end, first + chunk.count);
      if (begin >= end) continue;
      const std::vector<float> values(static_cast<std::size_t>(end - begin), initial);
      std::vector<std::byte> stored(values.size() *
                                    static_cast<std::size_t>(size_of(buffers.state_dtype)));
      optim::cast(values.data(), DType::fp32, stored.data(), buffers.state_dtype,
                  std::ssize(values));
      for (const int state : group.states)
        store_.write({chunk.flat_unit, chunk.segment, ArrayKind::state, state}, begin, stored);
    }
  }
}

StateAtRest Updater::at_rest(const Range& range) const {
  const ChunkView& view = range.view;
  StateAtRest rest{view.master_dtype, view.state_dtype,
                   view.master + (range.begin - view.begin) * size_of(view.master_dtype)};
  for (const int state : plan_.updates.group(range.run.group).states) {
    const auto k = static_cast<std::size_t>(state);
    rest.states[rest.state_count++] =
        view.states[k] + (range.buffers.state_position(k, range.begin) -
                          range.buffers.state_position(k, view.begin)) *
                             size_of(view.state_dtype);
  }
  return rest;
}

// But for master weights and states.
optim::UpdateSpans Updater::spans_of(const Range& range) const {
  const ChunkView& view = range.view;
  const std::int64_t at = range.begin - view.begin;
  optim::UpdateSpans spans;
  spans.count = range.end - range.begin;
  spans.gradient = view.gradient + at * size_of(view.gradient_dtype);
  spans.gradient_dtype = view.gradient_dtype;
  if (view.parameter != nullptr) spans.parameter = view.parameter + at * size_of(view.dtype);
  spans.parameter_dtype = view.dtype;
  if (range.directions != nullptr) {
    spans.gradient = range.directions;
    spans.gradient_dtype = DType::fp32;
  }
  return spans;
}

template <class Each>
void Updater::in_fp32(const Range& range, const Each& each) const {
  if (const StateAtRest rest = at_rest(range); rest.in_fp32()) {
    std::array<float*, most_states> states{};
    for (std::size_t i = 0; i < rest.state_count; ++i)
      states[i] = reinterpret_cast<float*>(rest.states[i]);
    optim::UpdateSpans spans = spans_of(range);
    spans.master = reinterpret_cast<float*>(rest.master);
    spans.state = std::span(states).first(rest.state_count);
    return each(spans, std::int64_t{0});
  }
  const std::int64_t count = range.end - range.begin;
  for (std::int64_t at = 0; at < count; at += Fp32Staging::elements) {
    const Range part = range.part(at, std::min(count, at + Fp32Staging::elements));
    const StateAtRest rest = at_rest(part);
    Fp32Staging block(rest, part.end - part.begin);
    optim::UpdateSpans spans = spans_of(part);
    spans.master = block.master();
    spans.state = block.states();
    each(spans, at);
    block.store();
  }
}

void Updater::update_range(const Range& range, const optim::StepScalars& scalars) {
  const optim::Optimizer& rule = *plan_.updates.group(range.run.group).rule;
  runtime_.pool().for_ranges(
      range.end - range.begin, grain_elements, [&](std::int64_t begin, std::int64_t end) {
        in_fp32(range.part(begin, end), [&](const optim::UpdateSpans& spans, std::int64_t) {
          rule.update(scalars, spans);
        });
      });
}

void Updater::direct(const Range& range, const optim::StepScalars& scalars,
                     float* directions) const {
  const optim::Optimizer& rule = *plan_.updates.group(range.run.group).rule;
  in_fp32(range, [&](const optim::UpdateSpans& spans, std::int64_t at) {
    rule.direction(scalars, spans, directions + at);
  });
}

void Updater::for_measured(const OpenChunk& open,
                           const std::function<void(const Range&, int)>& each) const {
  const Segment& segment =
      plan_.layout.flat_units[open.chunk.flat_unit].segments[open.chunk.segment];
  const std::int64_t end = open.view.begin + open.view.count;
  for (const UpdateRun& run : open.buffers.runs) {
    if (scope_of(run) != UpdateScope::tensor_norms) continue;
    for (const Piece& piece : pieces_between(model_, segment, std::max(run.begin, open.view.begin),
                                             std::min(run.end, end)))
      each({open.view, open.buffers, run, piece.segment_begin, piece.segment_begin + piece.count},
           piece.param);
  }
}

void Updater::measure_range(const Range& range, const optim::StepScalars& scalars, int param) {
  struct Sums {
    optim::NormBins parameter, direction;
  };
  std::vector<Sums> sums(static_cast<std::size_t>(runtime_.pool().threads()));
  const auto parts = static_cast<std::int64_t>(sums.size());
  const std::int64_t count = range.end - range.begin;
  runtime_.pool().run([&](int part) {
    Sums& own = sums[part];
    const std::int64_t end = count * (part + 1) / parts;
    for (std::int64_t at = count * part / parts; at < end; at += block_elements) {
      float directions[block_elements];
      const std::int64_t length = std::min(block_elements, end - at);
      const StateAtRest rest = at_rest(range.part(at, at + length));
      optim::accumulate_norm(rest.master, rest.master_dtype, length, own.parameter);
      direct(range.part(at, at + length), scalars, directions);
      optim::accumulate_norm(directions, DType::fp32, length, own.direction);
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
  for (int c = 0; c < static_cast<int>(plan_.inputs.chunks.size()); ++c)
    for_measured(open(c), [&](const Range& range, int param) {
      measure_range(range, scalars(range.run, terms), param);
    });
  if (plan_.layout.ranks > 1 && state_.policy().optimizer_sharded)
    ranks_.exchange("the norms of tensors", [&](comm::Communicator& communicator) {
      communicator.all_reduce(words, count, DType::int64);
    });
  if (Ranks* model_parallel = ranks_.model_parallel()) add_norms_of_parts(*model_parallel);
}

// Of parameters of which each rank of the model-parallel group holds a part.
void Updater::add_norms_of_parts(Ranks& model_parallel) {
  constexpr std::ptrdiff_t of_param = 2 * words_per_norm;
  std::vector<std::int64_t> sums;
  const auto for_parts = [&](const auto& each) {
    for (int p = 0; p < static_cast<int>(model_.params.size()); ++p)
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
  const OpenChunk chunk = open(number);
  const std::int64_t end = chunk.view.begin + chunk.view.count;
  for (const UpdateRun& run : chunk.buffers.runs) {
    const std::int64_t first = std::max(run.begin, chunk.view.begin), last = std::min(run.end, end);
    if (scope_of(run) == UpdateScope::elements && first < last)
      update_range({chunk.view, chunk.buffers, run, first, last}, scalars(run, terms));
  }
  for_measured(chunk, [&](const Range& range, int param) {
    optim::StepScalars own = scalars(range.run, terms);
    own.step_scale = plan_.updates.group(range.run.group)
                         .rule->step_scale(tensor_norm(param, parameter_norm),
                                           tensor_norm(param, direction_norm));
    update_range(range, own);
  });
  for (const MatrixBatch& batch :
       plan_.matrices.batches(chunk.chunk.flat_unit, chunk.chunk.segment))
    update_matrices(chunk, batch, terms);
}

template <class Each>
void Updater::for_directions(const OpenChunk& open, const MatrixBatch& batch, const Each& each) {
  float* directions = state_.directions();
  for (int owner = 0; owner < plan_.layout.ranks; ++owner)
    for (const PlannedMatrix& matrix : batch.matrices) {
      const Overlap own = overlap(matrix, open.view.begin, open.view.begin + open.view.count);
      if (matrix.owner != owner || own.count == 0) continue;
      const auto run = std::find_if(open.buffers.runs.begin(), open.buffers.runs.end(),
                                    [&](const UpdateRun& r) { return own.begin < r.end; });
      each(matrix,
           Range{open.view, open.buffers, *run, own.begin, own.begin + own.count, directions},
           directions);
      directions += own.count;
    }
}

// Those that this rank owns, which lie in the order of their places, each without a gap.
void Updater::orthogonalize(const OpenChunk& open, const MatrixBatch& batch) {
  const auto all = [&](const PlannedMatrix& matrix, float* values) {
    plan_.updates.group(matrix.group)
        .rule->orthogonalize(matrix.shape, values, state_.matrix_scratch(), runtime_.pool());
    return values + matrix.elements;
  };
  if (!plan_.matrices.sharded()) {
    float* next = state_.directions();
    for (const PlannedMatrix& matrix : batch.matrices) next = all(matrix, next);
    return;
  }
  const auto travel = [&](const float* from, float* to, const comm::PairCounts& counts) {
    exchange_(open.chunk.flat_unit, [&](comm::Communicator& communicator, Stream stream) {
      communicator.all_to_all(from, to, counts, DType::fp32, stream);
    });
  };
  travel(state_.directions(), state_.matrices(), batch.counts);
  float* next = state_.matrices();
  for (const PlannedMatrix& matrix : batch.matrices)
    if (matrix.owner == plan_.policy.rank) next = all(matrix, next);
  travel(state_.matrices(), state_.directions(), batch.way_back);
}

void Updater::update_matrices(const OpenChunk& open, const MatrixBatch& batch,
                              const UpdateTerms& terms) {
  for_directions(open, batch, [&](const PlannedMatrix&, Range range, float* directions) {
    range.directions = nullptr;  // from the gradient
    const optim::StepScalars own = scalars(range.run, terms);
    runtime_.pool().for_ranges(range.end - range.begin, grain_elements,
                               [&](std::int64_t begin, std::int64_t end) {
                                 direct(range.part(begin, end), own, directions + begin);
                               });
  });
  orthogonalize(open, batch);
  for_directions(open, batch, [&](const PlannedMatrix& matrix, const Range& range, float*) {
    optim::StepScalars own = scalars(range.run, terms);
    own.step_scale = matrix.shape.scale;
    update_range(range, own);
  });
}

}  // namespace zero::detail
