#include "zero/plan/matrix_plan.h"

#include <algorithm>

namespace zero::detail {

namespace {

// The largest first, each to the rank with the least work so far.
void assign_owners(std::vector<PlannedMatrix>& matrices, std::vector<double>& work) {
  const auto cost = [](const PlannedMatrix& matrix) {
    return static_cast<double>(matrix.elements) *
           static_cast<double>(std::min(matrix.shape.rows, matrix.shape.cols));
  };
  std::vector<PlannedMatrix*> order;
  for (PlannedMatrix& matrix : matrices) order.push_back(&matrix);
  std::stable_sort(order.begin(), order.end(), [&](const PlannedMatrix* a, const PlannedMatrix* b) {
    return cost(*a) > cost(*b);
  });
  for (PlannedMatrix* matrix : order) {
    const auto least = std::min_element(work.begin(), work.end());
    matrix->owner = static_cast<int>(least - work.begin());
    *least += cost(*matrix);
  }
}

}  // namespace

Overlap overlap(const PlannedMatrix& matrix, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = std::max(begin, matrix.offset);
  const std::int64_t last = std::min(end, matrix.offset + matrix.elements);
  return {first, std::max<std::int64_t>(0, last - first)};
}

MatrixPlan::MatrixPlan(const Model& model, const Layout& layout, const UpdateGroups& updates,
                       bool sharded)
    : updates_(updates), sharded_(sharded) {
  std::vector<double> work(static_cast<std::size_t>(layout.ranks), 0);
  for (const FlatUnit& flat : layout.flat_units) {
    auto& segments = batches_.emplace_back(flat.segments.size());
    for (std::size_t s = 0; s < flat.segments.size(); ++s) {
      std::vector<PlannedMatrix> matrices;
      for (const ParamPlace& place : flat.segments[s].params) {
        const ParamDeclaration& param = model.params[place.param];
        const int group = updates.group_of_param()[place.param];
        if (group < 0 || updates.group(group).rule->scope() != optim::UpdateScope::whole_matrices)
          continue;
        matrices.push_back({place.param, group, 0, place.offset, param.elements,
                            optim::matrix_shape(param.shape)});
      }
      if (sharded) assign_owners(matrices, work);
      if (sharded && !matrices.empty())
        add(segments[s], flat.segments[s], std::move(matrices), layout.ranks);
      else if (!sharded)
        for (const PlannedMatrix& matrix : matrices)
          add(segments[s], flat.segments[s], {matrix}, layout.ranks);
    }
  }
}

void MatrixPlan::add(std::vector<MatrixBatch>& batches, const Segment& segment,
                     std::vector<PlannedMatrix> matrices, int ranks) const {
  comm::PairCounts counts(ranks);
  for (const PlannedMatrix& matrix : matrices)
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t begin = rank * segment.shard;
      counts.add(rank, matrix.owner, overlap(matrix, begin, begin + segment.shard).count);
    }
  batches.push_back({std::move(matrices), counts, counts.reversed()});
}

MatrixStaging MatrixPlan::staging_of(const MatrixBatch& batch, int rank) const {
  MatrixStaging staging;
  if (sharded_) {
    staging.directions = batch.counts.sent(rank);
    staging.matrices = batch.counts.received(rank);
  }
  for (const PlannedMatrix& matrix : batch.matrices) {
    if (!sharded_) staging.directions += matrix.elements;
    if (sharded_ && matrix.owner != rank) continue;
    const optim::Optimizer& rule = *updates_.group(matrix.group).rule;
    staging.scratch = std::max(staging.scratch, rule.scratch_elements(matrix.shape));
  }
  return staging;
}

MatrixStaging MatrixPlan::staging(int rank) const {
  MatrixStaging most;
  for (const auto& segments : batches_)
    for (const auto& batches : segments)
      for (const MatrixBatch& batch : batches) {
        const MatrixStaging own = staging_of(batch, rank);
        most.directions = std::max(most.directions, own.directions);
        most.matrices = std::max(most.matrices, own.matrices);
        most.scratch = std::max(most.scratch, own.scratch);
      }
  return most;
}

}  // namespace zero::detail
