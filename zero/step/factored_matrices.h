// The matrices whose second moment is factored (Adafactor), with the memory of each: moments, which
// every rank has whole, and staging. Belongs to the Updates.
#pragma once

#include <vector>

#include "optim/factored_matrix.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/buffers.h"
#include "zero/state/memory_requests.h"

namespace zero::detail {

class FactoredMatrices {
 public:
  struct Member {
    int param = 0;
    int number = 0;  // in KeptBuffers::factored
    optim::FactoredMatrix matrix;
    std::int64_t sums() const { return matrix.all_rows() + matrix.all_cols(); }
  };

  // Both must outlive this object.
  FactoredMatrices(const EnginePlan& plan, const Buffers& buffers);

  void request(MemoryRequests& requests);
  // Call once the requests and the buffers have memory.
  void place();

  bool empty() const { return params_.empty(); }
  const std::vector<Member>& of_segment(const SegmentId& id) const { return by_segment_[id]; }
  // The matrix of a parameter; without arrays if the rule has no factors.
  optim::FactoredMatrix of_param(int param) const;
  // The sums of one segment at a time: rows and columns, matrix by matrix.
  optim::NormSum* sums() const { return sums_; }

 private:
  const Buffers& buffers_;
  const Layout& layout_;
  BySegment<std::vector<Member>> by_segment_;
  std::vector<const Member*> params_;  // by number
  std::int64_t scales_count_ = 0, sums_count_ = 0;
  optim::NormSum* sums_ = nullptr;
  float* scales_ = nullptr;
};

}  // namespace zero::detail
