#include "ops/recurrent.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) { return InferRecurrent(c, 3, 1, "gru_scan"); }

template <class T>
void Run(const KernelContext& c) {
  const RecurrentSizes s(c.in(0), c.in(1));
  const int64_t width = s.width, states = s.batch * width;
  const T *weight = c.in(2).as<T>(), *bias = c.has(3) ? c.in(3).as<T>() : nullptr;
  T* h = c.out(1).as<T>();
  CopyBytes(h, c.in(1).data, static_cast<size_t>(states) * sizeof(T));
  for (int64_t i = 0; i < s.steps; ++i) {
    const int64_t t = s.StepAt(i, c.attr(0).Bool());
    const T* gates = c.in(0).as<T>() + t * states * 3;
    T* out = c.out().as<T>() + t * states;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t k = 0; k < width; ++k) {
        double own[3], from[3];  // the state's and the input's part
        for (int64_t part = 0; part < 3; ++part) {
          const int64_t row = part * width + k;
          own[part] = Dot(h + b * width, 1, weight + row * width, 1, width, bias ? static_cast<double>(Load(bias[row])) : 0.0);
          from[part] = static_cast<double>(Load(gates[b * 3 * width + row]));
        }
        const double reset = Logistic(from[0] + own[0]), update = Logistic(from[1] + own[1]);
        const double candidate = std::tanh(from[2] + reset * own[2]);
        out[b * width + k] = Convert<T>((1 - update) * candidate + update * static_cast<double>(Load(h[b * width + k])));
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

// The recurrent part of a GRU layer in one direction (Cho et al., 2014, with the reset gate after the product as PyTorch has it; gates r, z, n).
// gates f[T,B,3H] is the input's part, with its bias; the state's part is h @ weight^T + bias. Results: h of every step f[T,B,H], the last h f[B,H].
constinit const OpDef kOpGruScan = {"gru_scan",
                                    "gru_scan(Tensor gates, Tensor h0, Tensor weight, Tensor? bias, bool reverse=False) -> (Tensor, Tensor h)",
                                    "",
                                    "dovetail::gru_scan.out",
                                    kFused,
                                    Infer,
                                    Reference};

}  // namespace dovetail
