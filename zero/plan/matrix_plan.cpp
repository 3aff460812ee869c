#include "zero/plan/matrix_plan.h"

#include <algorithm>
#include <functional>

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
  std::ranges::stable_sort(order, std::greater(),
                           [&](const PlannedMatrix* matrix) { return cost(*matrix); });
  for (PlannedMatrix* matrix : order) {
    const auto least = std::ranges::min_element(work);
    matrix->owner = static_cast<int>(least - work.begin());
    *least += cost(*matrix);
  }
}

}  // namespace

MatrixPlan::MatrixPlan(const Model& model, const Layout& layout, const UpdateGroups& updates,
                       Holding holding)
    : holding_(holding),
      grid_(layout.grid),
      members_(holding == Holding::slice   ? layout.grid.data_ranks()
               : holding == Holding::shard ? layout.grid.shard_ranks()
                                           : 1),
      batches_(layout) {
  std::vector<double> work(members_, 0);
  for (const SegmentId& id : layout.segments()) {
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
    if (!sharded())
      for (const PlannedMatrix& matrix : matrices) add(id, layout, {matrix});
    if (!sharded() || matrices.empty()) continue;
    assign_owners(matrices, work);
    add(id, layout, std::move(matrices));
  }
}

void MatrixPlan::add(const SegmentId& id, const Layout& layout,
                     std::vector<PlannedMatrix> matrices) {
  comm::PairCounts counts(members_);
  for (const PlannedMatrix& matrix : matrices)
    for (int member = 0; member < members_; ++member) {
      const std::int64_t count = layout.segment(id).length / members_;
      const Range part = intersection(matrix.range, {member * count, (member + 1) * count});
      if (!part.empty()) counts.add(member, matrix.owner, part.count());
    }
  batches_[id].push_back({std::move(matrices), counts, counts.reversed()});
}

MatrixStaging MatrixPlan::staging(int member) const {
  MatrixStaging most;
  for (const Batches& batches : batches_.all())
    for (const MatrixBatch& batch : batches) {
      most.directions = std::max(most.directions, batch.counts.sent(member));
      if (sharded()) most.matrices = std::max(most.matrices, batch.counts.received(member));
      for (const PlannedMatrix& matrix : batch.matrices)
        if (matrix.owner == member)
          most.scratch = std::max(most.scratch, optim::scratch_elements(matrix.shape));
    }
  return most;
}

}  // namespace zero::detail
