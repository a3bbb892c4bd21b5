// Recurrent layers step by step: the state's part of all gates is one product of matrices, the rest elementwise.
#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "ops/recurrent.h"

namespace dovetail::kernels {
namespace {

constexpr int64_t kColumns = 64;     // of a product for one thread
constexpr int64_t kSmall = 1 << 16;  // multiplications of a step below which one thread does all

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// own[batch, rows] = h @ weight^T + bias.
void StatePart(const RecurrentSizes& s, int64_t rows, const float* h, const float* weight, const float* bias, float* own, struct pthreadpool* pool) {
  for (int64_t b = 0; b < s.batch; ++b) {
    if (bias) std::copy_n(bias, rows, own + b * rows);
    else std::fill_n(own + b * rows, rows, 0.0f);
  }
  ParallelFor(s.batch * rows * s.width < kSmall ? nullptr : pool, (rows + kColumns - 1) / kColumns, [&](int64_t i) {
    const int64_t begin = i * kColumns, n = std::min(kColumns, rows - begin);
    MultiplyTransposed({s.batch, n, s.width, h, s.width, weight + begin * s.width, s.width, own + begin, rows});
  });
}

size_t GateBytes(const KernelContext& c) {
  return c.in(0).dtype == DType::kF32 ? static_cast<size_t>(c.in(0).sizes[1] * c.in(0).sizes[2]) * sizeof(float) : 0;
}

}  // namespace

Status LstmScan(const KernelContext& c) {
  if (c.in(0).dtype != DType::kF32) return GetOp(OpId::kLstmScan).reference(c);
  const RecurrentSizes s(c.in(0), c.in(1));
  const int64_t width = s.width, states = s.batch * width;
  float *own = reinterpret_cast<float*>(c.scratch.data()), *last = c.out(1).as<float>(), *cell = c.out(2).as<float>();
  CopyBytes(last, c.in(1).data, static_cast<size_t>(states) * sizeof(float));
  CopyBytes(cell, c.in(2).data, static_cast<size_t>(states) * sizeof(float));
  for (int64_t i = 0; i < s.steps; ++i) {
    const int64_t t = s.StepAt(i, c.attr(0).Bool());
    StatePart(s, 4 * width, last, c.in(3).as<float>(), c.has(4) ? c.in(4).as<float>() : nullptr, own, c.pool);
    const float* gates = c.in(0).as<float>() + t * states * 4;
    float* out = c.out().as<float>() + t * states;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t k = 0; k < width; ++k) {
        const auto gate = [&](int64_t part) { return gates[(b * 4 + part) * width + k] + own[(b * 4 + part) * width + k]; };
        float& now = cell[b * width + k];
        now = Sigmoid(gate(1)) * now + Sigmoid(gate(0)) * std::tanh(gate(2));
        out[b * width + k] = Sigmoid(gate(3)) * std::tanh(now);
      }
    CopyBytes(last, out, static_cast<size_t>(states) * sizeof(float));
  }
  return OkStatus();
}
size_t LstmScanScratch(const KernelContext& c) { return GateBytes(c); }

Status GruScan(const KernelContext& c) {
  if (c.in(0).dtype != DType::kF32) return GetOp(OpId::kGruScan).reference(c);
  const RecurrentSizes s(c.in(0), c.in(1));
  const int64_t width = s.width, states = s.batch * width;
  float *own = reinterpret_cast<float*>(c.scratch.data()), *last = c.out(1).as<float>();
  CopyBytes(last, c.in(1).data, static_cast<size_t>(states) * sizeof(float));
  for (int64_t i = 0; i < s.steps; ++i) {
    const int64_t t = s.StepAt(i, c.attr(0).Bool());
    StatePart(s, 3 * width, last, c.in(2).as<float>(), c.has(3) ? c.in(3).as<float>() : nullptr, own, c.pool);
    const float* gates = c.in(0).as<float>() + t * states * 3;
    float* out = c.out().as<float>() + t * states;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t k = 0; k < width; ++k) {
        const int64_t at = b * 3 * width + k;
        const float reset = Sigmoid(gates[at] + own[at]), update = Sigmoid(gates[at + width] + own[at + width]);
        const float candidate = std::tanh(gates[at + 2 * width] + reset * own[at + 2 * width]);
        out[b * width + k] = (1 - update) * candidate + update * last[b * width + k];
      }
    CopyBytes(last, out, static_cast<size_t>(states) * sizeof(float));
  }
  return OkStatus();
}
size_t GruScanScratch(const KernelContext& c) { return GateBytes(c); }

}  // namespace dovetail::kernels
