#include "zero/step/factored_matrices.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace zero::detail {

namespace {

optim::FactoredMatrix matrix_of(const Shape& shape, std::int64_t elements) {
  optim::FactoredMatrix matrix;
  matrix.cols = shape[shape.size() - 1];
  matrix.rows = shape[shape.size() - 2];
  matrix.batch = elements / (matrix.rows * matrix.cols);
  return matrix;
}

}  // namespace

FactoredMatrices::FactoredMatrices(const EnginePlan& plan, const Buffers& buffers)
    : buffers_(buffers), layout_(plan.layout), by_segment_(plan.layout) {
  const std::vector<int>& factored = plan.buffers.factored;
  params_.resize(factored.size());
  for (const SegmentId& id : layout_.segments()) {
    for (const ParamPlace& place : layout_.segment(id).params) {
      const auto found = std::ranges::lower_bound(factored, place.param);
      if (found == factored.end() || *found != place.param) continue;
      const ParamDeclaration& declared = plan.inputs.model->params[place.param];
      by_segment_[id].push_back({place.param, static_cast<int>(found - factored.begin()),
                                 matrix_of(declared.shape, declared.elements)});
    }
    std::int64_t sums = 0;
    for (const Member& member : by_segment_[id]) {
      params_[member.number] = &member;
      sums += member.sums();
    }
    scales_count_ += sums;
    sums_count_ = std::max(sums_count_, sums);
  }
}

void FactoredMatrices::request(MemoryRequests& requests) {
  if (empty()) return;
  constexpr MemoryCategory category = MemoryCategory::update_staging;
  requests.add(category, sums_count_ * static_cast<std::int64_t>(sizeof(optim::NormSum)), sums_);
  requests.add(category, scales_count_ * size_of(DType::fp32), scales_);
}

void FactoredMatrices::place() {
  float* scales = scales_;
  for (const SegmentId& id : layout_.segments()) {
    optim::NormSum* sums = sums_;
    for (Member& member : by_segment_[id]) {
      optim::FactoredMatrix& matrix = member.matrix;
      std::tie(matrix.row_var, matrix.col_var) = buffers_.moments(member.number);
      matrix.row_sums = std::exchange(sums, sums + matrix.all_rows());
      matrix.col_sums = std::exchange(sums, sums + matrix.all_cols());
      matrix.row_scale = std::exchange(scales, scales + matrix.all_rows());
      matrix.col_scale = std::exchange(scales, scales + matrix.all_cols());
    }
  }
}

optim::FactoredMatrix FactoredMatrices::of_param(int param) const {
  const auto found =
      std::ranges::find(params_, param, [](const Member* member) { return member->param; });
  return found == params_.end() ? optim::FactoredMatrix() : (*found)->matrix;
}

}  // namespace zero::detail
