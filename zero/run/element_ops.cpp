#include "zero/run/element_ops.h"

namespace zero::detail {

void ElementOps::cast(const Source& from, const Target& to, std::int64_t count,
                      Stream stream) const {
  if (on_host())
    optim::cast(from.data, from.dtype, to.data, to.dtype, count);
  else if (from.dtype == to.dtype)
    runtime_.device().copy(to.data, from.data, count * size_of(to.dtype), stream);
  else
    runtime_.kernels().cast(from.data, from.dtype, to.data, to.dtype, count, stream);
}

void ElementOps::assign_or_add(const Target& sum, const Source& addend, std::int64_t count,
                               bool first, Stream stream) const {
  if (on_host())
    detail::assign_or_add(sum, addend, count, first);
  else if (first)
    cast(addend, sum, count, stream);
  else
    runtime_.kernels().accumulate(sum.data, sum.dtype, addend.data, addend.dtype, count, stream);
}

void ElementOps::divide(const Target& gradient, std::int64_t count, float divisor,
                        Stream stream) const {
  if (on_host())
    optim::divide_gradient(gradient.data, gradient.dtype, count, divisor);
  else
    runtime_.kernels().divide(gradient.data, gradient.dtype, count, divisor, stream);
}

}  // namespace zero::detail
