#include "zero/pass/step_losses.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace zero::detail {

void StepLosses::begin_step() {
  sum_ = 0;
  std::ranges::fill(each_, 0);
  missing_ = 0;
  scalars_.begin_losses();
}

void StepLosses::name_missing() {
  if (missing_ == 0 || !train_.is_root() || std::exchange(missing_named_, true)) return;
  std::fprintf(stderr,
               train_.model.any_order
                   ? "zero: backward of %d of the %d passes of step %lld was of no loss that the "
                     "engine was given by its backward(): they count as 0 in the loss that is "
                     "reported\n"
                   : "zero: MicroStep::loss() was not called in %d of the %d micro steps of step "
                     "%lld: they count as 0 in the loss that is reported\n",
               missing_, train_.micro_step + 1, static_cast<long long>(train_.step + 1));
}

}  // namespace zero::detail
