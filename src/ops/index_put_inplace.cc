#include "ops/advanced_index.h"
#include "ops/op_def.h"

namespace dovetail {

constinit const OpDef kOpIndexPutInplace = {
    "index_put_", "index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)",
    "",           "aten::index_put_",
    kDataMovement, InferIndexPut,
    ReferenceIndexPut};

}  // namespace dovetail
