#include <cstring>

#include "ops/advanced_index.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  DT_ASSIGN_OR_RETURN(const IndexLayout layout, LayOutIndexed(c.operand(0).shape, c.operands.subspan(1)));
  return SetMovedResult(c, layout.result);
}

Status Reference(const KernelContext& c) {
  const IndexWalker walker(c.in(0), c.inputs.subspan(1));
  const size_t bytes = ByteSize(c.in(0).dtype);
  for (int64_t i = 0; i < walker.size(); ++i) {
    DT_ASSIGN_OR_RETURN(const int64_t from, walker.Offset(i));
    std::memcpy(c.out().as<std::byte>() + i * bytes, c.in(0).as<std::byte>() + from * bytes, bytes);
  }
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpIndex = {"index",
                                  "index(Tensor self, Tensor?[] indices) -> Tensor",
                                  "aten.index.Tensor aten._unsafe_index.Tensor",
                                  "aten::index.Tensor_out",
                                  kDataMovement,
                                  Infer,
                                  Reference};

}  // namespace dovetail
