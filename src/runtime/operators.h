// Which code runs an operator of a .pte: a kernel of the op set, one of ExecuTorch's names for something the op set can do,
// or a primitive on numbers and views that the loop runs itself.
#pragma once

#include <string_view>
#include <variant>

#include "ops/op_def.h"

namespace dovetail {

// Everything needed to bind and run calls of one operator.
struct KernelEntry {
  const OpDef* def = nullptr;
  const Schema* schema = nullptr;
  KernelFn run = nullptr;
  ScratchFn scratch = nullptr;  // null: none
};

// Arguments as ExecuTorch has them, the result last.
enum class Prim : uint8_t {
  kAdd, kSub, kMul, kFloorDiv, kTrueDiv, kMod, kMax, kMin, kEq, kNe, kLt, kLe, kGt, kGe,  // two numbers
  kNeg, kNot, kToFloat, kToInt, kCeil, kRound, kTrunc,                                  // one number
  kIfElse,      // condition, two numbers
  kSize,        // tensor, dim
  kNumel,       // tensor
  kItem,        // tensor of one element
  kView,        // tensor, sizes; the result is a view of the tensor
};

struct PrimEntry {
  std::string_view name;
  Prim prim;
  uint8_t arguments;  // without the result
};

using OperatorEntry = std::variant<std::monostate, KernelEntry, PrimEntry>;

// By the full name, "aten::add.out". monostate: there is no such operator.
OperatorEntry FindOperator(std::string_view name);
inline bool IsSupportedOperator(std::string_view name) { return !std::holds_alternative<std::monostate>(FindOperator(name)); }

}  // namespace dovetail
