// add, sub, mul and div in f32 with broadcasting; an operand of one element may have any type.
#include <array>

#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"
#include "ops/dispatch.h"

namespace dovetail::kernels {
namespace {

enum class Operation { kAddScaled, kMul, kDiv };

// out[i] = a[i * a_step] . b[i * b_step], steps 0 or 1.
struct Run {
  float* out;
  const float *a, *b;
  int64_t a_step, b_step, n;
};

template <class Fn>
DT_INLINE void Apply(const Run& r, const Fn& fn) {
  float* __restrict out = r.out;
  const float *__restrict a = r.a, *__restrict b = r.b;
  const float first = *a, second = *b;
  if (r.a_step && r.b_step) for (int64_t i = 0; i < r.n; ++i) out[i] = fn(a[i], b[i]);
  else if (r.a_step) for (int64_t i = 0; i < r.n; ++i) out[i] = fn(a[i], second);
  else if (r.b_step) for (int64_t i = 0; i < r.n; ++i) out[i] = fn(first, b[i]);
  else std::fill_n(out, r.n, fn(first, second));
}

DT_VECTORIZED void RunAddScaled(const Run& r, float alpha) {
  Apply(r, [=](float a, float b) __attribute__((always_inline)) { return a + alpha * b; });
}
DT_VECTORIZED void RunMul(const Run& r) {
  Apply(r, [](float a, float b) __attribute__((always_inline)) { return a * b; });
}
DT_VECTORIZED void RunDiv(const Run& r) {
  Apply(r, [](float a, float b) __attribute__((always_inline)) { return a / b; });
}

// The result's dims, neighbours joined where both operands go on evenly, and how far each operand moves along them.
struct Walk {
  size_t rank = 0;
  std::array<int64_t, kMaxRank> sizes{};
  std::array<std::array<int64_t, kMaxRank>, 2> strides{};

  Walk(const TensorView& out, const TensorView& a, const TensorView& b) {
    for (size_t d = 0; d < out.rank; ++d) {
      if (out.sizes[d] == 1) continue;
      const std::array<int64_t, 2> s = {StrideOf(a, out, d), StrideOf(b, out, d)};
      const bool joins = rank > 0 && strides[0][rank - 1] == s[0] * out.sizes[d] && strides[1][rank - 1] == s[1] * out.sizes[d];
      if (!joins) sizes[rank++] = 1;
      sizes[rank - 1] *= out.sizes[d];
      for (size_t k = 0; k < 2; ++k) strides[k][rank - 1] = s[k];
    }
    if (rank == 0) sizes[rank++] = 1;
  }
  static int64_t StrideOf(const TensorView& t, const TensorView& out, size_t d) {
    const size_t skipped = out.rank - t.rank;
    return d < skipped || t.sizes[d - skipped] == 1 ? 0 : t.stride(d - skipped);
  }
};

Status Binary(const KernelContext& c, OpId id, Operation operation, float alpha) {
  const TensorView& out = c.out();
  std::array<float, 2> scalars;
  std::array<const float*, 2> data;
  for (size_t k = 0; k < 2; ++k) {
    const TensorView& t = c.in(k);
    if (out.dtype != DType::kF32 || (t.dtype != DType::kF32 && t.numel() != 1)) return GetOp(id).reference(c);
    data[k] = t.as<float>();
    if (t.numel() != 1) continue;
    scalars[k] = Reader<float>(t)[0];
    data[k] = &scalars[k];
  }
  const Walk walk(out, c.in(0), c.in(1));
  const size_t last = walk.rank - 1;
  ParallelRanges(c.pool, out.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t inner = begin % walk.sizes[last];
      Run run{out.as<float>() + begin, data[0], data[1], walk.strides[0][last], walk.strides[1][last], std::min(end - begin, walk.sizes[last] - inner)};
      int64_t rest = begin / walk.sizes[last], a = inner * run.a_step, b = inner * run.b_step;
      for (size_t d = last; d-- > 0; rest /= walk.sizes[d]) {
        a += rest % walk.sizes[d] * walk.strides[0][d];
        b += rest % walk.sizes[d] * walk.strides[1][d];
      }
      run.a += a;
      run.b += b;
      if (operation == Operation::kAddScaled) RunAddScaled(run, alpha);
      else if (operation == Operation::kMul) RunMul(run);
      else RunDiv(run);
      begin += run.n;
    }
  });
  return OkStatus();
}

}  // namespace

Status Add(const KernelContext& c) { return Binary(c, OpId::kAdd, Operation::kAddScaled, ScalarAs<float>(c.attr(0), 1)); }
Status Sub(const KernelContext& c) { return Binary(c, OpId::kSub, Operation::kAddScaled, -ScalarAs<float>(c.attr(0), 1)); }
Status Mul(const KernelContext& c) { return Binary(c, OpId::kMul, Operation::kMul, 1); }
Status Div(const KernelContext& c) { return Binary(c, OpId::kDiv, Operation::kDiv, 1); }

}  // namespace dovetail::kernels
