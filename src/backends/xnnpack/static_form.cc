// Which operators XNNPACK computes on integers with one scale for the whole tensor, and within which ratios of scales. What it refuses in
// other ratios only asserts in its sources (src/microparams-init.c of 2024-11) would stop: a release build gives wrong numbers.
#include <algorithm>
#include <cmath>

#include "backends/xnnpack/lowering.h"
#include "ops/infer_util.h"

namespace dovetail::xnnpack {
namespace {

bool IsStatic(const Lowering& l, ValueId v) {
  return v != kNone && l.type(v).per_tensor() && l.type(v).dtype == DType::kI8 && std::isnormal(l.type(v).quant.scale);
}

bool SameScale(const Lowering& l, ValueId a, ValueId b) { return IsStatic(l, a) && IsStatic(l, b) && l.type(a).quant == l.type(b).quant; }

bool Within(double ratio, double least, double bound) { return ratio >= least && ratio < bound; }

double Ratio(const Lowering& l, ValueId from, ValueId to) {
  return static_cast<double>(l.type(from).quant.scale) / static_cast<double>(l.type(to).quant.scale);
}

bool Binary(const Lowering& l, const Node& n) {
  const ValueId a = n.operands[0], b = n.operands[1], y = n.results[0];
  if (!IsStatic(l, a) || !IsStatic(l, b) || !IsStatic(l, y)) return false;
  if (n.op == OpId::kMul) return Within(Ratio(l, a, y) * static_cast<double>(l.type(b).quant.scale), 0x1p-16, 0x1p8);
  return GetAttr(n, "alpha").Number(1) == 1 && Within(Ratio(l, a, y), 0x1p-10, 0x1p8) && Within(Ratio(l, b, y), 0x1p-10, 0x1p8);
}

bool Mean(const Lowering& l, const Node& n) {
  const ValueId x = n.operands[0], y = n.results[0];
  const std::span<const Dim> dims = DimsOf(GetAttr(n, "dim"));
  return l.type(x).rank() == 4 && dims.size() == 2 && IsStatic(l, x) && IsStatic(l, y) && Within(Ratio(l, x, y), 0x1p-10, 0x1p8);
}

// Linears and convolutions: the products' scale beside the result's, and a bias that fits into i32 in units of it.
bool Weighted(Lowering& l, const Node& n) {
  const ValueId x = GetOperand(n, "input"), y = n.results[0], bias = GetOperand(n, "bias");
  const Constant* scale = GetConstant(l.module(), l.graph(), GetOperand(n, "weight_scale"));
  if (!IsStatic(l, x) || !IsStatic(l, y) || !scale || scale->type.dtype != DType::kF32) return false;
  if (!scale->data_known) return true;
  const Constant* b = l.F32Constant(bias);
  const std::vector<float> scales = l.FloatsOf(*scale), biases = b && b->data_known ? l.FloatsOf(*b) : std::vector<float>(scales.size(), 0);
  for (size_t i = 0; i < scales.size(); ++i) {
    const double product = static_cast<double>(scales[i]) * static_cast<double>(l.type(x).quant.scale);
    if (!std::isnormal(scales[i]) || !Within(product / static_cast<double>(l.type(y).quant.scale), 0x1p-32, 0x1p8)) return false;
    if (!(std::abs(static_cast<double>(biases[i]) / product) < 0x1p30)) return false;
  }
  return true;
}

}  // namespace

bool HasStaticForm(Lowering& l, const Node& n) {
  switch (n.op) {
    case OpId::kQuantizedLinear:
    case OpId::kQuantizedConvolution: return Weighted(l, n);
    case OpId::kAdd:
    case OpId::kSub:
    case OpId::kMul: return Binary(l, n);
    case OpId::kMean: return Mean(l, n);
    // These keep the scale.
    case OpId::kRelu:
    case OpId::kClamp:
    case OpId::kHardtanh:
    case OpId::kMaxPool2dWithIndices:
    case OpId::kConstantPadNd: return SameScale(l, n.operands[0], n.results[0]);
    // A table of 256 entries, made from the function in f32.
    case OpId::kAbs:
    case OpId::kNeg:
    case OpId::kExp:
    case OpId::kSin:
    case OpId::kCos:
    case OpId::kTanh:
    case OpId::kSigmoid: return IsStatic(l, n.operands[0]) && IsStatic(l, n.results[0]);
    default: return false;
  }
}

void LowerNode(Lowering& l, const Node& n) {
  const auto quantized = [&](ValueId v) { return v != kNone && l.type(v).per_tensor(); };
  const bool any = std::any_of(n.operands.begin(), n.operands.end(), quantized) || std::any_of(n.results.begin(), n.results.end(), quantized);
  l.set_in_f32(any && !ComputesOnIntegers(n.op) && !HasStaticForm(l, n));
  FindLowering(n.op)(l, n);
  l.set_in_f32(false);
}

}  // namespace dovetail::xnnpack
