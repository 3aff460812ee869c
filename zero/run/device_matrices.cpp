#include "zero/run/device_matrices.h"

#include <utility>

#include "zero/run/device_parts.h"

namespace zero::detail {

DeviceMatrices::DeviceMatrices(RuntimeCore& runtime, const EnginePlan& plan,
                               const ModelState& state, Travel travel)
    : runtime_(runtime), plan_(plan), state_(state), travel_(std::move(travel)) {}

template <class Each>
void DeviceMatrices::for_directions(const OpenChunk& open, const MatrixBatch& batch,
                                    const Terms& terms, const Each& each) const {
  float* directions = state_.directions();
  const std::int64_t first = open.view.begin;
  for (int owner = 0; owner < plan_.layout.ranks; ++owner)
    for (const PlannedMatrix& matrix : batch.matrices) {
      const Overlap own = overlap(matrix, first, first + open.view.count);
      if (matrix.owner != owner || own.count == 0) continue;
      optim::DeviceUpdate update = terms.common;
      point_at(open.buffers, open.view, plan_.updates.group(matrix.group),
               {own.begin - first, own.count}, update);
      update.group = matrix.group;
      each(matrix, update, directions);
      directions += own.count;
    }
}

float* DeviceMatrices::orthogonalize(const PlannedMatrix& matrix, float* values,
                                     const Terms& terms) {
  const bool gram =
      optim::rule_kind(plan_.updates.group(matrix.group).options) == optim::RuleKind::muon_gram;
  const optim::DeviceMatrix on_device{matrix.shape, values, state_.matrix_scratch(), terms.norm};
  queue([this, gram, on_device](Stream stream) {
    optim::orthogonalize(runtime_.kernels(),
                         gram ? optim::NewtonSchulz::gram : optim::NewtonSchulz::standard,
                         on_device, stream);
  });
  return values + matrix.elements;
}

void DeviceMatrices::orthogonalize(int flat_unit, const MatrixBatch& batch, const Terms& terms) {
  if (!plan_.matrices.sharded()) {
    float* next = state_.directions();
    for (const PlannedMatrix& matrix : batch.matrices) next = orthogonalize(matrix, next, terms);
    return;
  }
  const auto travel = [&](const float* from, float* to, const comm::PairCounts& counts) {
    travel_(flat_unit, [from, to, &counts](comm::Communicator& communicator, Stream stream) {
      communicator.all_to_all(from, to, counts, DType::fp32, stream);
    });
  };
  travel(state_.directions(), state_.matrices(), batch.counts);
  float* next = state_.matrices();
  for (const PlannedMatrix& matrix : batch.matrices)
    if (matrix.owner == plan_.policy.rank) next = orthogonalize(matrix, next, terms);
  travel(state_.matrices(), state_.directions(), batch.way_back);
}

void DeviceMatrices::update(int number, const ChunkView& view, const Terms& terms) {
  const Chunk& chunk = plan_.inputs.chunks[number];
  const OpenChunk open{chunk, view, state_.segment(chunk.flat_unit, chunk.segment)};
  for (const MatrixBatch& batch : plan_.matrices.batches(chunk.flat_unit, chunk.segment)) {
    for_directions(open, batch, terms,
                   [&](const PlannedMatrix&, const optim::DeviceUpdate& update, float* directions) {
                     queue([this, update, directions, verdict = terms.verdict](Stream stream) {
                       runtime_.kernels().direct(update, directions, verdict, stream);
                     });
                   });
    orthogonalize(chunk.flat_unit, batch, terms);
    for_directions(
        open, batch, terms,
        [&](const PlannedMatrix& matrix, optim::DeviceUpdate update, float* directions) {
          update.gradient = directions;
          update.gradient_dtype = DType::fp32;
          queue([this, update, scale = matrix.shape.scale, verdict = terms.verdict](Stream stream) {
            runtime_.kernels().step_along(update, scale, verdict, stream);
          });
        });
  }
}

}  // namespace zero::detail
