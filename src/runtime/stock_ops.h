// ExecuTorch's operators that the IR spells differently (mm is matmul, select_copy is slice and view): small definitions of
// their own, of the same shape as the op set's, so that the loop knows no difference.
#pragma once

#include <string_view>

#include "ops/op_def.h"

namespace dovetail {

struct StockOp {
  OpDef def;
  // The kernel of this op runs it when its inputs and attributes are at the same places; kCount: def.reference does.
  OpId kernel = OpId::kCount;
};

// Null when there is none of that out-variant's name.
const StockOp* FindStockOp(std::string_view name);
// The parsed schema, kept.
const Schema& StockSchema(const StockOp& op);

}  // namespace dovetail
