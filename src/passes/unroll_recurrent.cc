// Recurrent layers over a constant number of steps become their steps, for runtimes without our scans. Each step is a linear layer and elementwise
// operators, so backends take them.
#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

constexpr int64_t kMaxSteps = 512;

class Unroll {
 public:
  Unroll(RewriteContext& c, const Node& n)
      : b_(c.builder), operands_(n.operands), reverse_(GetAttr(n, "reverse").Bool()), lstm_(n.op == OpId::kLstmScan) {}

  Result<std::vector<ValueId>> Run() {
    const ValueId all = operands_[0], weight = operands_[lstm_ ? 3 : 2], bias = operands_[lstm_ ? 4 : 3];
    h_ = operands_[1];
    cell_ = lstm_ ? operands_[2] : kNone;
    const Shape shape = b_.type(all).shape;
    const int64_t steps = shape[0].value();
    width_ = b_.type(h_).shape[1].value();
    std::vector<ValueId> outputs(static_cast<size_t>(steps));
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t t = reverse_ ? steps - 1 - i : i;
      DT_ASSIGN_OR_RETURN(ValueId gates, b_.Emit(OpId::kSlice, {all}, {{"dim", 0}, {"start", t}, {"end", t + 1}}));
      DT_ASSIGN_OR_RETURN(gates, b_.Emit(OpId::kView, {gates}, {{"size", std::vector<Dim>{shape[1], shape[2]}}}));
      DT_ASSIGN_OR_RETURN(const ValueId own, b_.Emit(OpId::kLinear, {h_, weight, bias}));
      DT_RETURN_IF_ERROR(lstm_ ? StepLstm(gates, own) : StepGru(gates, own));
      DT_ASSIGN_OR_RETURN(outputs[static_cast<size_t>(t)], b_.Emit(OpId::kView, {h_}, {{"size", std::vector<Dim>{Dim(1), shape[1], Dim(width_)}}}));
    }
    DT_ASSIGN_OR_RETURN(const ValueId out, b_.Emit(OpId::kCat, std::move(outputs), {{"dim", 0}}));
    std::vector<ValueId> results = {out, h_};
    if (lstm_) results.push_back(cell_);
    return results;
  }

 private:
  Result<ValueId> Part(ValueId gates, int64_t i) { return b_.Emit(OpId::kSlice, {gates}, {{"dim", 1}, {"start", i * width_}, {"end", (i + 1) * width_}}); }
  Result<ValueId> Gate(OpId op, ValueId gates, int64_t i) {
    DT_ASSIGN_OR_RETURN(const ValueId part, Part(gates, i));
    return b_.Emit(op, {part});
  }

  Status StepLstm(ValueId gates, ValueId own) {
    DT_ASSIGN_OR_RETURN(const ValueId sum, b_.Emit(OpId::kAdd, {gates, own}));
    DT_ASSIGN_OR_RETURN(const ValueId in, Gate(OpId::kSigmoid, sum, 0));
    DT_ASSIGN_OR_RETURN(const ValueId forget, Gate(OpId::kSigmoid, sum, 1));
    DT_ASSIGN_OR_RETURN(const ValueId now, Gate(OpId::kTanh, sum, 2));
    DT_ASSIGN_OR_RETURN(const ValueId out, Gate(OpId::kSigmoid, sum, 3));
    DT_ASSIGN_OR_RETURN(const ValueId kept, b_.Emit(OpId::kMul, {forget, cell_}));
    DT_ASSIGN_OR_RETURN(const ValueId added, b_.Emit(OpId::kMul, {in, now}));
    DT_ASSIGN_OR_RETURN(cell_, b_.Emit(OpId::kAdd, {kept, added}));
    DT_ASSIGN_OR_RETURN(const ValueId shown, b_.Emit(OpId::kTanh, {cell_}));
    DT_ASSIGN_OR_RETURN(h_, b_.Emit(OpId::kMul, {out, shown}));
    return OkStatus();
  }

  // h = n + z (h - n)
  Status StepGru(ValueId gates, ValueId own) {
    const auto gate = [&](int64_t i) -> Result<ValueId> {
      DT_ASSIGN_OR_RETURN(const ValueId a, Part(gates, i));
      DT_ASSIGN_OR_RETURN(const ValueId b, Part(own, i));
      DT_ASSIGN_OR_RETURN(const ValueId sum, b_.Emit(OpId::kAdd, {a, b}));
      return b_.Emit(OpId::kSigmoid, {sum});
    };
    DT_ASSIGN_OR_RETURN(const ValueId reset, gate(0));
    DT_ASSIGN_OR_RETURN(const ValueId update, gate(1));
    DT_ASSIGN_OR_RETURN(const ValueId from, Part(gates, 2));
    DT_ASSIGN_OR_RETURN(ValueId candidate, Part(own, 2));
    DT_ASSIGN_OR_RETURN(candidate, b_.Emit(OpId::kMul, {reset, candidate}));
    DT_ASSIGN_OR_RETURN(candidate, b_.Emit(OpId::kAdd, {from, candidate}));
    DT_ASSIGN_OR_RETURN(candidate, b_.Emit(OpId::kTanh, {candidate}));
    DT_ASSIGN_OR_RETURN(ValueId change, b_.Emit(OpId::kSub, {h_, candidate}));
    DT_ASSIGN_OR_RETURN(change, b_.Emit(OpId::kMul, {update, change}));
    DT_ASSIGN_OR_RETURN(h_, b_.Emit(OpId::kAdd, {candidate, change}));
    return OkStatus();
  }

  Builder& b_;
  const std::vector<ValueId> operands_;  // emitting moves the graph's nodes
  const bool reverse_, lstm_;
  int64_t width_ = 0;
  ValueId h_ = kNone, cell_ = kNone;
};

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const Node& n = c.graph.node(id);
  if (n.op != OpId::kLstmScan && n.op != OpId::kGruScan) return Replacement();
  const Dim steps = c.graph.type(n.operands[0]).shape[0];
  if (!steps.is_constant() || steps.value() < 1 || steps.value() > kMaxSteps) return Replacement();
  Unroll unroll(c, n);
  DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, unroll.Run());
  return Replacement(std::move(results));
}

}  // namespace

Status UnrollRecurrent(Module& module) {
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteModule(module, Rule));
  return OkStatus();
}

}  // namespace dovetail
