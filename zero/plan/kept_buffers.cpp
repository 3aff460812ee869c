#include "zero/plan/kept_buffers.h"

#include <utility>

namespace zero::detail {

namespace {

// `summed`: the dimension that is summed over, counted from the end.
BufferDeclaration moments_of(const char* name, const ParamDeclaration& matrix, int summed) {
  BufferDeclaration moments{name + (" of " + matrix.name), matrix.shape, 0,
                            safetensors_name(DType::fp32)};
  moments.elements = matrix.elements / *(moments.shape.end() - summed);
  moments.shape.erase(moments.shape.end() - summed);
  return moments;
}

}  // namespace

KeptBuffers::KeptBuffers(const Model& model, const UpdateGroups& updates)
    : all(model.buffers), of_model(static_cast<int>(all.size())) {
  for (int p = 0; p < static_cast<int>(model.params.size()); ++p) {
    const ParamDeclaration& param = model.params[p];
    if (!updates.factors(p) || param.elements == 0) continue;
    all.push_back(moments_of("row_var", param, 1));
    all.push_back(moments_of("col_var", param, 2));
    factored.push_back(p);
  }
}

}  // namespace zero::detail
