// Where rules that need whole matrices (Muon) find them: which rank makes each matrix orthogonal,
// and what the ranks send each other for it. Cuts stay where the layout has them. A pure function
// of layout, groups and ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/pair_counts.h"
#include "zero/plan/layout.h"
#include "zero/plan/update_groups.h"

namespace zero::detail {

struct PlannedMatrix {
  int param = 0, group = 0, owner = 0;
  std::int64_t offset = 0, elements = 0;  // within the segment
  optim::MatrixShape shape;
};

// Matrices of one segment that are assembled together, and what the ranks send their owners.
struct MatrixBatch {
  std::vector<PlannedMatrix> matrices;
  comm::PairCounts counts, way_back;
};

// fp32 elements that a rank needs at once.
struct MatrixStaging {
  std::int64_t directions = 0;  // of its slices of a batch, by owner
  std::int64_t matrices = 0;    // that it owns in a batch, where they come from several ranks
  std::int64_t scratch = 0;
};

class MatrixPlan {
 public:
  // sharded: each rank updates its slice, and a segment is a batch; else every rank has every
  // matrix, and takes one after the other.
  MatrixPlan(const Model& model, const Layout& layout, const UpdateGroups& updates, bool sharded);

  const std::vector<MatrixBatch>& batches(int flat_unit, int segment) const {
    return batches_[flat_unit][segment];
  }
  MatrixStaging staging(int rank) const;
  bool sharded() const { return sharded_; }

 private:
  void add(std::vector<MatrixBatch>& batches, const Segment& segment,
           std::vector<PlannedMatrix> matrices, int ranks) const;
  MatrixStaging staging_of(const MatrixBatch& batch, int rank) const;

  const UpdateGroups& updates_;
  bool sharded_;
  std::vector<std::vector<std::vector<MatrixBatch>>> batches_;  // by flat unit and segment
};

// Elements of the matrix in a rank's slice of its segment.
struct Overlap {
  std::int64_t begin = 0, count = 0;  // from the start of the segment
};
Overlap overlap(const PlannedMatrix& matrix, std::int64_t begin, std::int64_t end);

}  // namespace zero::detail
