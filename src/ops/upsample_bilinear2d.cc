#include <algorithm>

#include "ops/op_def.h"
#include "ops/upsample.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) { return InferUpsample(c, c.attr(0), c.attr(2), "upsample_bilinear2d"); }

// Two neighbours and the weight of the second. Position 0 is the middle of the first element, with align_corners and without.
template <class V>
struct Between {
  int64_t first, second;
  V weight;
};
template <class V>
class Sampler {
 public:
  Sampler(int64_t from, int64_t to, bool align_corners, const Attr& factors, size_t dim) : size_(from), align_corners_(align_corners) {
    if (!align_corners) step_ = UpsampleStep<V>(factors, dim, from, to);
    else if (to > 1) step_ = static_cast<V>(from - 1) / static_cast<V>(to - 1);
  }
  Between<V> At(int64_t i) const {
    const V at = align_corners_ ? step_ * static_cast<V>(i) : std::max(V(0), step_ * (static_cast<V>(i) + V(0.5)) - V(0.5));
    const int64_t first = std::min(static_cast<int64_t>(at), size_ - 1);
    return {first, std::min(first + 1, size_ - 1), std::clamp(at - static_cast<V>(first), V(0), V(1))};
  }

 private:
  int64_t size_;
  bool align_corners_;
  V step_ = 0;
};

Status Reference(const KernelContext& c) {
  const TensorView &in = c.in(0), &out = c.out();
  const int64_t in_h = in.sizes[2], in_w = in.sizes[3], out_h = out.sizes[2], out_w = out.sizes[3];
  return DispatchFloat(in.dtype, [&]<class T>() -> Status {
    using V = ComputeOf<T>;
    const Sampler<V> rows(in_h, out_h, c.attr(1).Bool(), c.attr(2), 0), columns(in_w, out_w, c.attr(1).Bool(), c.attr(2), 1);
    for (int64_t i = 0; i < out.numel(); ++i) {
      const T* plane = in.as<T>() + i / (out_h * out_w) * in_h * in_w;
      const Between<V> y = rows.At(i / out_w % out_h), x = columns.At(i % out_w);
      const auto row = [&](int64_t r) {
        return (1 - x.weight) * Load(plane[r * in_w + x.first]) + x.weight * Load(plane[r * in_w + x.second]);
      };
      out.as<T>()[i] = Convert<T>((1 - y.weight) * row(y.first) + y.weight * row(y.second));
    }
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpUpsampleBilinear2d = {
    "upsample_bilinear2d",
    "upsample_bilinear2d(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
    "",
    "aten::upsample_bilinear2d.vec_out",
    kPure,
    Infer,
    Reference};

}  // namespace dovetail
