#include "zero/pass/gradient_use.h"

#include <cstdio>
#include <string>
#include <utility>

#include "zero/base/text.h"

namespace zero::detail {

void GradientUse::await(int flat_unit) {
  walker_.await_gradient(train_.plan.inputs.gradient_slots.slot_of[flat_unit]);
  hidden_.show_gradients(flat_unit);
}

void* GradientUse::request(int param, float* beta) {
  const Place& place = train_.place(param);
  const SegmentArrays& buffers = train_.arrays.segment(place);
  await(place.flat_unit);
  std::byte* data = buffers[ArrayKind::gradient].of(place.offset);
  char& touched = touched_[param];
  if (beta != nullptr)
    *beta = touched ? 1.f : 0.f;
  else if (!touched)
    queue_zeros(train_.runtime, data, train_.param(param).elements * size_of(buffers.dtype));
  touched = ever_touched_[param] = 1;
  return data;
}

void GradientUse::complete(int flat_unit) {
  await(flat_unit);
  for (const SegmentId id : train_.layout().trainable_of(flat_unit)) {
    const Segment& segment = train_.layout().segment(id);
    const SegmentArrays& buffers = train_.arrays.segment(id);
    const auto zero = [&](std::int64_t begin, std::int64_t end) {
      queue_zeros(train_.runtime, buffers[ArrayKind::gradient].of(begin),
                  (end - begin) * size_of(buffers.dtype));
    };
    std::int64_t filled = 0;
    for (const auto& [param, offset] : segment.params) {
      zero(filled, offset);
      filled = offset + (touched_[param] ? train_.param(param).elements : 0);
      if (train_.plan.empties_gradients()) touched_[param] = 0;
    }
    zero(filled, segment.length);
  }
  recomputation_.note_gradient(flat_unit);
}

void GradientUse::name_unasked() {
  if (std::exchange(unasked_named_, true) || !train_.is_root()) return;
  std::vector<std::string> names;
  for (int p = 0; p < std::ssize(train_.model.params); ++p)
    if (const ParamDeclaration& param = train_.param(p);
        param.options.trainable && param.elements > 0 && !ever_touched_[p] && !param.in_stages)
      names.push_back(param.name);
  if (!names.empty())
    std::fprintf(stderr, "zero: no gradient was asked for of %s; it counts as zero\n",
                 list_of(names, 8).c_str());
}

}  // namespace zero::detail
