#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "ops/dispatch.h"

namespace dovetail::kernels {
namespace {

template <class From, class To>
Status ConvertAll(const KernelContext& c) {
  const From* from = c.in(0).as<From>();
  To* to = c.out().as<To>();
  ParallelRanges(c.pool, c.out().numel(), kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = Convert<To>(Load(from[i]));
  });
  return OkStatus();
}

}  // namespace

// To and from f32; other pairs by the reference.
Status ToDtype(const KernelContext& c) {
  const DType from = c.in(0).dtype, to = c.out().dtype;
  if (from == to) {
    ParallelCopy(c.pool, c.out().data, c.in(0).data, c.out().nbytes());
    return OkStatus();
  }
  if (to == DType::kF32) return DispatchConvertible(from, [&]<class T>() { return ConvertAll<T, float>(c); });
  if (from == DType::kF32) return DispatchConvertible(to, [&]<class T>() { return ConvertAll<float, T>(c); });
  return GetOp(OpId::kToDtype).reference(c);
}

}  // namespace dovetail::kernels
