// The operators without a kernel: the interpreter and the emitter know them. Their node names a constant, a state or a region.
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status NoInference(const InferContext&) { return Internal("a structural operator has the type it was given"); }
Status NoKernel(const KernelContext&) { return Internal("a structural operator has no kernel"); }
}  // namespace

constinit const OpDef kOpConst = {"const", "const() -> Tensor", "", "", kStructural, NoInference, NoKernel};
constinit const OpDef kOpStateRead = {"state.read", "state.read() -> Tensor", "", "", kStructural, NoInference, NoKernel};
constinit const OpDef kOpStateWrite = {"state.write", "state.write(Tensor value) -> ()", "", "", kStructural, NoInference, NoKernel};
constinit const OpDef kOpDelegate = {"delegate", "delegate(Tensor[] operands) -> Tensor[]", "", "", kStructural, NoInference, NoKernel};

}  // namespace dovetail
