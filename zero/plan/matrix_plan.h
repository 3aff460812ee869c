// Plan for rules that need whole matrices (Muon): the rank that orthogonalizes each matrix, and the
// data that ranks exchange to do so. The layout and its shards are unchanged. A pure function of
// layout, groups and ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/pair_counts.h"
#include "optim/orthogonalize.h"
#include "zero/plan/layout.h"
#include "zero/plan/update_groups.h"

namespace zero::detail {

struct PlannedMatrix {
  int param = 0, group = 0, owner = 0;
  Range range;  // in the segment
  optim::MatrixShape shape;
};

// Matrices of a segment that are assembled together, and the numbers of elements sent to the owners
// and back.
struct MatrixBatch {
  std::vector<PlannedMatrix> matrices;
  comm::PairCounts counts, way_back;
};

// Staging memory of a rank, in fp32 elements.
struct MatrixStaging {
  std::int64_t directions = 0;  // for the rank's part of every matrix of a batch, by owner
  std::int64_t matrices = 0;    // for the whole matrices assembled for a batch
  std::int64_t scratch = 0;
};

class MatrixPlan {
 public:
  // `holding`: the elements of a segment that a rank updates. If these are not all, the matrices of
  // a segment form a single batch, owned by members of the group of ranks that share the update
  // (all ranks, or a shard group), in the order of slices or shards. Otherwise every rank has every
  // matrix, and each matrix is a batch.
  MatrixPlan(const Model& model, const Layout& layout, const UpdateGroups& updates,
             Holding holding);

  const std::vector<MatrixBatch>& batches(const SegmentId& id) const { return batches_[id]; }
  // Staging of a member of the group.
  MatrixStaging staging(int member) const;
  bool sharded() const { return members_ > 1; }
  int members() const { return members_; }  // 1 if every rank has every matrix
  int member(int rank) const {
    if (!sharded()) return 0;
    return holding_ == Holding::slice ? grid_.slice_of(rank) : grid_.in_group(rank);
  }
  bool empty() const { return std::ranges::all_of(batches_.all(), &Batches::empty); }

 private:
  using Batches = std::vector<MatrixBatch>;
  void add(const SegmentId& id, const Layout& layout, std::vector<PlannedMatrix> matrices);

  Holding holding_;
  ProcessGrid grid_;
  int members_;
  BySegment<Batches> batches_;
};

}  // namespace zero::detail
