#include "runtime/operators.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr PrimEntry kPrims[] = {
    {"executorch_prim::add.Scalar", Prim::kAdd, 2},           {"executorch_prim::sub.Scalar", Prim::kSub, 2},
    {"executorch_prim::mul.Scalar", Prim::kMul, 2},           {"executorch_prim::floordiv.Scalar", Prim::kFloorDiv, 2},
    {"executorch_prim::truediv.Scalar", Prim::kTrueDiv, 2},   {"executorch_prim::mod.Scalar", Prim::kMod, 2},
    {"executorch_prim::sym_max.Scalar", Prim::kMax, 2},       {"executorch_prim::sym_min.Scalar", Prim::kMin, 2},
    {"executorch_prim::eq.Scalar", Prim::kEq, 2},             {"executorch_prim::ne.Scalar", Prim::kNe, 2},
    {"executorch_prim::lt.Scalar", Prim::kLt, 2},             {"executorch_prim::le.Scalar", Prim::kLe, 2},
    {"executorch_prim::gt.Scalar", Prim::kGt, 2},             {"executorch_prim::ge.Scalar", Prim::kGe, 2},
    {"executorch_prim::neg.Scalar", Prim::kNeg, 1},           {"executorch_prim::sym_not.Scalar", Prim::kNot, 1},
    {"executorch_prim::sym_float.Scalar", Prim::kToFloat, 1}, {"executorch_prim::sym_int.Scalar", Prim::kToInt, 1},
    {"executorch_prim::ceil.Scalar", Prim::kCeil, 1},         {"executorch_prim::round.Scalar", Prim::kRound, 1},
    {"executorch_prim::trunc.Scalar", Prim::kTrunc, 1},       {"executorch_prim::if_else.Scalar", Prim::kIfElse, 3},
    {"aten::sym_size.int", Prim::kSize, 2},                   {"aten::sym_numel", Prim::kNumel, 1},
    {"aten::_local_scalar_dense", Prim::kItem, 1},            {"executorch_prim::et_view.default", Prim::kView, 2},
};

}  // namespace

OperatorEntry FindOperator(std::string_view name) {
  const auto* prim = std::find_if(std::begin(kPrims), std::end(kPrims), [&](const PrimEntry& e) { return e.name == name; });
  if (prim != std::end(kPrims)) return *prim;
  const OpId id = FindOutVariant(name);
  if (id == OpId::kCount) return {};
  return KernelEntry{&GetOp(id), &GetSchema(id), FindKernel(id), FindScratch(id)};
}

}  // namespace dovetail
