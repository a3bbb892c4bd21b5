// Convolutions as products of matrices: the weights of a group times what each of its taps meets, for a block of results at a time. The second matrix is
// gathered for the block, or is the input itself where each result meets one position.
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "ops/window.h"

namespace dovetail::kernels {
namespace {

enum { kStride, kPadding, kDilation, kTransposed, kOutputPadding, kGroups };

constexpr int64_t kRows = 64;      // output channels of a block
constexpr int64_t kColumns = 128;  // positions of a block
constexpr int64_t kInner = 64;     // products summed at a time

struct Plan {
  Window window;
  int64_t groups, in_channels, out_channels;  // channels of one group
  int64_t in_h, in_w, out_w, out_area;
  int64_t taps() const { return window[0].kernel * window[1].kernel; }
  int64_t inner() const { return in_channels * taps(); }
  bool gathers() const {
    const auto plain = [](const WindowDim& d) { return d.kernel == 1 && d.stride == 1 && d.padding == 0; };
    return !plain(window[0]) || !plain(window[1]);
  }
};

Result<Plan> MakePlan(const KernelContext& c) {
  const TensorView &input = c.in(0), &weight = c.in(1), &out = c.out();
  const size_t spatial = input.rank - 2u;
  Plan p;
  for (size_t i = 0; i < spatial; ++i) {
    WindowDim& w = p.window[2 - spatial + i];
    w.kernel = weight.sizes[2 + i];
    DT_ASSIGN_OR_RETURN(w.stride, WindowArg(c.attr(kStride), i, spatial, 1, 1, "convolution's stride"));
    DT_ASSIGN_OR_RETURN(w.padding, WindowArg(c.attr(kPadding), i, spatial, 0, 0, "convolution's padding"));
    DT_ASSIGN_OR_RETURN(w.dilation, WindowArg(c.attr(kDilation), i, spatial, 1, 1, "convolution's dilation"));
  }
  p.groups = c.attr(kGroups).Int(1);
  p.in_channels = input.sizes[1] / p.groups;
  p.out_channels = out.sizes[1] / p.groups;
  p.in_h = spatial == 2 ? input.sizes[2] : 1;
  p.in_w = input.sizes[input.rank - 1u];
  p.out_w = out.sizes[out.rank - 1u];
  p.out_area = spatial == 2 ? out.sizes[2] * p.out_w : p.out_w;
  return p;
}

// Row k of `to` is what tap k (of `count` from `first`) meets at positions `begin` to `end` of the result.
void Gather(const Plan& p, const float* input, int64_t first, int64_t count, int64_t begin, int64_t end, float* to) {
  const WindowDim &h = p.window[0], &w = p.window[1];
  for (int64_t k = first; k < first + count; ++k, to += kColumns) {
    const int64_t tap = k % p.taps();
    const float* plane = input + k / p.taps() * p.in_h * p.in_w;
    const int64_t first_y = tap / w.kernel * h.dilation - h.padding, first_x = tap % w.kernel * w.dilation - w.padding;
    float* at = to;
    for (int64_t position = begin; position < end;) {
      const int64_t row = position / p.out_w, column = position % p.out_w, n = std::min(p.out_w - column, end - position);
      const int64_t y = first_y + row * h.stride, x = first_x + column * w.stride;
      if (y < 0 || y >= p.in_h) {
        std::fill_n(at, n, 0.0f);
      } else {
        // Results i of the n whose position lies inside: from <= i < until.
        const int64_t from = std::clamp<int64_t>(x >= 0 ? 0 : (-x + w.stride - 1) / w.stride, 0, n);
        const int64_t until = std::clamp<int64_t>(x >= p.in_w ? 0 : (p.in_w - 1 - x) / w.stride + 1, from, n);
        const float* source = plane + y * p.in_w + x;
        std::fill_n(at, from, 0.0f);
        if (w.stride == 1) std::copy(source + from, source + until, at + from);
        else
          for (int64_t i = from; i < until; ++i) at[i] = source[i * w.stride];
        std::fill_n(at + until, n - until, 0.0f);
      }
      at += n;
      position += n;
    }
  }
}

}  // namespace

Status Convolution(const KernelContext& c) {
  if (c.out().dtype != DType::kF32 || c.attr(kTransposed).Bool()) return GetOp(OpId::kConvolution).reference(c);
  DT_ASSIGN_OR_RETURN(const Plan p, MakePlan(c));
  const float *input = c.in(0).as<float>(), *weight = c.in(1).as<float>(), *bias = c.has(2) ? c.in(2).as<float>() : nullptr;
  float* out = c.out().as<float>();
  const int64_t down = (p.out_channels + kRows - 1) / kRows, across = (p.out_area + kColumns - 1) / kColumns;
  const int64_t in_plane = p.in_h * p.in_w, inner = p.inner();
  struct pthreadpool* pool = c.out().numel() * inner < 65536 ? nullptr : c.pool;
  ParallelFor(pool, c.out().sizes[0] * p.groups * down * across, [&](int64_t i) {
    const int64_t group = i / (down * across);  // counted through the batch
    const int64_t row = i / across % down * kRows, column = i % across * kColumns;
    const int64_t m = std::min(kRows, p.out_channels - row), n = std::min(kColumns, p.out_area - column);
    const int64_t channel = group % p.groups * p.out_channels + row;
    const float *from = input + group * p.in_channels * in_plane, *w = weight + channel * inner;
    float* block = out + (group * p.out_channels + row) * p.out_area + column;
    for (int64_t r = 0; r < m; ++r) std::fill_n(block + r * p.out_area, n, bias ? bias[channel + r] : 0.0f);
    if (!p.gathers()) {
      for (int64_t k = 0; k < inner; k += kInner)
        MultiplyAdd({m, n, std::min(kInner, inner - k), w + k, inner, from + k * in_plane + column, in_plane, block, p.out_area});
      return;
    }
    alignas(64) float gathered[kInner * kColumns];
    for (int64_t k = 0; k < inner; k += kInner) {
      const int64_t count = std::min(kInner, inner - k);
      Gather(p, from, k, count, column, column + n, gathered);
      MultiplyAdd({m, n, count, w + k, inner, gathered, kColumns, block, p.out_area});
    }
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
