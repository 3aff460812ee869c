// The buffers of a rank, which all ranks have whole and checkpoints contain: those of the model,
// then the moments of rows and of columns of each parameter whose second moment is factored.
#pragma once

#include <vector>

#include "zero/plan/model.h"
#include "zero/plan/update_groups.h"

namespace zero::detail {

struct KeptBuffers {
  KeptBuffers(const Model& model, const UpdateGroups& updates);

  std::vector<BufferDeclaration> all;
  int of_model = 0;           // the first of `all`
  std::vector<int> factored;  // parameters, each with two buffers: row_var and col_var

  // The parameter of a moment's buffer; -1 for a buffer of the model.
  int moment_of(int index) const {
    return index < of_model ? -1 : factored[(index - of_model) / 2];
  }
};

}  // namespace zero::detail
