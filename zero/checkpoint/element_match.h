// The elements of a checkpoint that a rank needs: each range with the checkpoint's numbers of
// parameters, states and elements, and with the model's. Parameters are matched by name, states by
// name, and elements of parameters in parts by their place in the whole. Local.
#pragma once

#include <vector>

#include "zero/checkpoint/format/manifest.h"

namespace zero::checkpoint {

class ElementMatch {
 public:
  struct Want {
    ElementRange saved, own;
  };

  ElementMatch() = default;
  // `own` describes the model.
  ElementMatch(const Manifest& saved, const Manifest& own);

  // Wants ranges of the model, and all buffers. Those that the checkpoint leaves out are skipped.
  // Both manifests as given to the constructor, of equal shapes.
  void want(const std::vector<ElementRange>& needed, const Manifest& saved, const Manifest& own);
  // In the checkpoint's order.
  const std::vector<Want>& wants() const { return wants_; }
  // Returns the model's elements for a piece of a wanted range of the checkpoint.
  ElementRange own_of(const ElementRange& piece) const;

  // The model's parameter for the checkpoint's number, and the model's kind for the checkpoint's;
  // -1: none.
  std::vector<int> number_of, kind_of;

 private:
  void add(const ElementRange& saved, const ElementRange& own, const TensorSplit& was,
           const TensorSplit& now);

  std::vector<Want> wants_;
};

}  // namespace zero::checkpoint
