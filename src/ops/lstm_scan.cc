#include "ops/recurrent.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) { return InferRecurrent(c, 4, 2, "lstm_scan"); }

template <class T>
void Run(const KernelContext& c) {
  const RecurrentSizes s(c.in(0), c.in(1));
  const int64_t width = s.width, states = s.batch * width;
  const T *weight = c.in(3).as<T>(), *bias = c.has(4) ? c.in(4).as<T>() : nullptr;
  T *h = c.out(1).as<T>(), *cell = c.out(2).as<T>();
  CopyBytes(h, c.in(1).data, static_cast<size_t>(states) * sizeof(T));
  CopyBytes(cell, c.in(2).data, static_cast<size_t>(states) * sizeof(T));
  for (int64_t i = 0; i < s.steps; ++i) {
    const int64_t t = s.StepAt(i, c.attr(0).Bool());
    const T* gates = c.in(0).as<T>() + t * states * 4;
    T* out = c.out().as<T>() + t * states;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t k = 0; k < width; ++k) {
        double g[4];
        for (int64_t part = 0; part < 4; ++part) {
          const int64_t row = part * width + k;
          g[part] = Dot(h + b * width, 1, weight + row * width, 1, width, static_cast<double>(Load(gates[b * 4 * width + row])));
          if (bias) g[part] += static_cast<double>(Load(bias[row]));
        }
        const double now = Logistic(g[1]) * static_cast<double>(Load(cell[b * width + k])) + Logistic(g[0]) * std::tanh(g[2]);
        cell[b * width + k] = Convert<T>(now);
        out[b * width + k] = Convert<T>(Logistic(g[3]) * std::tanh(now));
      }
    CopyBytes(h, out, static_cast<size_t>(states) * sizeof(T));
  }
}

Status Reference(const KernelContext& c) {
  return DispatchFloat(c.out().dtype, [&]<class T>() -> Status {
    Run<T>(c);
    return OkStatus();
  });
}

}  // namespace

// The recurrent part of an LSTM layer in one direction (Hochreiter & Schmidhuber, 1997; gates i, f, g, o in PyTorch's order). gates f[T,B,4H] is the
// input's part, with its bias; each step adds h @ weight^T + bias. Results: h of every step f[T,B,H], the last h and cell f[B,H].
constinit const OpDef kOpLstmScan = {
    "lstm_scan",
    "lstm_scan(Tensor gates, Tensor h0, Tensor c0, Tensor weight, Tensor? bias, bool reverse=False) -> (Tensor, Tensor h, Tensor c)",
    "",
    "dovetail::lstm_scan.out",
    kFused,
    Infer,
    Reference};

}  // namespace dovetail
