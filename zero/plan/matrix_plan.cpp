#include "zero/plan/matrix_plan.h"

#include <algorithm>

namespace zero::detail {

namespace {

// Assigns the largest matrix first, each to the rank with the least work so far.
void assign_owners(std::vector<PlannedMatrix>& matrices, std::vector<double>& work) {
  const auto cost = [](const PlannedMatrix& matrix) {
    return static_cast<double>(matrix.range.count()) *
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

MatrixPlan::MatrixPlan(const Model& model, const Layout& layout, const UpdateGroups& updates,
                       bool sharded)
    : sharded_(sharded),
      segments_(layout.segments().begin(), layout.segments().end()),
      batches_(layout) {
  std::vector<double> work(layout.ranks, 0);
  for (const SegmentId& id : segments_) {
    std::vector<PlannedMatrix> matrices;
    for (const auto& [param, offset] : layout.segment(id).params) {
      const ParamDeclaration& declared = model.params[param];
      const int group = updates.group_of_param()[param];
      if (group >= 0 && updates.group(group).rule->scope == optim::UpdateScope::whole_matrices)
        matrices.push_back({param,
                            group,
                            0,
                            {offset, offset + declared.elements},
                            optim::matrix_shape(declared.shape)});
    }
    if (!sharded)
      for (const PlannedMatrix& matrix : matrices) add(id, layout, {matrix});
    if (!sharded || matrices.empty()) continue;
    assign_owners(matrices, work);
    add(id, layout, std::move(matrices));
  }
}

void MatrixPlan::add(const SegmentId& id, const Layout& layout,
                     std::vector<PlannedMatrix> matrices) {
  comm::PairCounts counts(layout.ranks);
  for (const PlannedMatrix& matrix : matrices)
    for (int rank = 0; rank < layout.ranks; ++rank) {
      const Range part = intersection(matrix.range, layout.segment(id).shard_of(rank));
      if (!part.empty()) counts.add(rank, matrix.owner, part.count());
    }
  batches_[id].push_back({std::move(matrices), counts, counts.reversed()});
}

MatrixStaging MatrixPlan::staging_of(const MatrixBatch& batch, int rank) const {
  MatrixStaging staging;
  if (sharded_) {
    staging.directions = batch.counts.sent(rank);
    staging.matrices = batch.counts.received(rank);
  }
  for (const PlannedMatrix& matrix : batch.matrices) {
    if (!sharded_) staging.directions += matrix.range.count();
    if (sharded_ && matrix.owner != rank) continue;
    staging.scratch = std::max(staging.scratch, optim::scratch_elements(matrix.shape));
  }
  return staging;
}

MatrixStaging MatrixPlan::staging(int rank) const {
  MatrixStaging most;
  for (const SegmentId& id : segments_)
    for (const MatrixBatch& batch : batches_[id]) {
      const MatrixStaging own = staging_of(batch, rank);
      most.directions = std::max(most.directions, own.directions);
      most.matrices = std::max(most.matrices, own.matrices);
      most.scratch = std::max(most.scratch, own.scratch);
    }
  return most;
}

}  // namespace zero::detail
