// Evaluates nodes whose operands are constants. Moving and casting a constant makes a strided view of the same bytes, whatever its
// size; arithmetic is done only where the result is small.
#include <algorithm>
#include <cstring>

#include "ir/interpreter.h"
#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

constexpr int64_t kMaxFoldedBytes = int64_t{1} << 16;

// The constant under the same bytes with other strides, or nullopt.
std::optional<Constant> Restride(const Node& n, const Constant& c, const TensorType& to) {
  Constant r = c;
  r.type = to;
  const bool moves = n.op == OpId::kPermute || n.op == OpId::kExpand || n.op == OpId::kView || n.op == OpId::kSlice;
  if (moves && to.shape.numel() == Dim(0)) {  // the sizes beside a 0 may be of any size, and a start past the end
    r.strides.assign(to.rank(), 0);
    r.offset = 0;
    return r;
  }
  if (n.op == OpId::kPermute) {
    const std::vector<Dim>& dims = GetAttr(n, "dims").Dims();
    const int64_t rank = static_cast<int64_t>(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) r.strides[i] = c.strides[static_cast<size_t>(dims[i].value() < 0 ? dims[i].value() + rank : dims[i].value())];
    return r;
  }
  if (n.op == OpId::kExpand) {
    r.strides.assign(to.rank(), 0);
    for (size_t i = 0; i < c.type.rank(); ++i)
      if (c.type.shape[i] == to.shape[i + to.rank() - c.type.rank()]) r.strides[i + to.rank() - c.type.rank()] = c.strides[i];
    return r;
  }
  if (n.op == OpId::kView) {
    Constant probe = c;
    probe.type.dtype = probe.stored;
    if (!probe.contiguous()) return std::nullopt;
    r.strides.assign(to.rank(), 0);
    int64_t stride = 1;
    for (size_t i = to.rank(); i-- > 0;) {
      r.strides[i] = stride;
      stride *= to.shape[i].value();
    }
    return r;
  }
  if (n.op == OpId::kSlice) {
    const int64_t rank = static_cast<int64_t>(c.type.rank());
    const int64_t axis = GetAttr(n, "dim").Int();
    const size_t d = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    const int64_t size = c.type.shape[d].value();
    int64_t start = GetAttr(n, "start").Int(0);
    if (start < 0) start += size;
    start = std::clamp<int64_t>(start, 0, size);
    r.offset += start * c.strides[d];
    // Where nothing steps along it, a step is any number that a file says.
    r.strides[d] = to.shape[d].value() > 1 ? c.strides[d] * GetAttr(n, "step").Int(1) : 0;
    return r;
  }
  // A cast that loses nothing but precision of floats is done as the bytes are streamed out.
  if (n.op == OpId::kToDtype && c.stored == c.type.dtype && IsFloat(c.type.dtype) && IsFloat(to.dtype)) return r;
  return std::nullopt;
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  Graph& g = c.graph;
  const Node& n = g.node(id);
  if ((GetOp(n.op).traits & kStructural) || n.results.size() != 1) return Replacement();
  const TensorType type = g.type(n.results[0]);
  if (!type.shape.is_constant()) return Replacement();
  for (ValueId v : n.operands)
    if (v != kNone && !(GetConstant(c.module, g, v) && GetConstant(c.module, g, v)->data_known)) return Replacement();
  // The reference kernel of such a node takes real numbers.
  const auto quantized = [&](ValueId v) { return v != kNone && g.type(v).per_tensor(); };
  if (!ComputesOnIntegers(n.op) && (type.per_tensor() || std::any_of(n.operands.begin(), n.operands.end(), quantized))) return Replacement();
  for (const Attr& a : n.attrs) {
    if (const Dim* d = a.get<Dim>(); d && !d->is_constant()) return Replacement();
    for (Dim d : a.Dims())
      if (!d.is_constant()) return Replacement();
  }
  std::string name = g.value(n.results[0]).name;
  if (n.operands.size() == 1 && n.operands[0] != kNone) {
    const Constant& source = *GetConstant(c.module, g, n.operands[0]);
    if (auto restrided = Restride(n, source, type)) {
      restrided->name = UniqueConstantName(c.module, StrCat(source.name, ".", GetOp(n.op).name));
      c.module.constants.push_back(std::move(*restrided));
      return Replacement(std::vector<ValueId>{c.builder.Const(static_cast<uint32_t>(c.module.constants.size() - 1))});
    }
  }
  // Weights that recover_quantized left: computed here, whatever their size, and not in every call.
  const bool weight = n.op == OpId::kDequantizeAffine || n.op == OpId::kDequantize;
  if (!weight && type.shape.numel().value() > kMaxFoldedBytes) return Replacement();
  int64_t bytes = type.shape.numel().value() * static_cast<int64_t>(ByteSize(type.dtype));
  for (ValueId v : n.operands)
    if (v != kNone) bytes = std::max(bytes, static_cast<int64_t>(GetConstant(c.module, g, v)->nbytes()));
  if (!weight && bytes > kMaxFoldedBytes) return Replacement();
  std::vector<OwnedTensor> operands;
  std::vector<TensorView> inputs;
  for (ValueId v : n.operands) {
    if (v == kNone) {
      operands.emplace_back();
      inputs.emplace_back();
      continue;
    }
    const Constant& source = *GetConstant(c.module, g, v);
    operands.push_back(OwnedTensor::Make(source.type));
    source.CopyTo(operands.back().storage.data());
    inputs.push_back(operands.back().view());
  }
  OwnedTensor result = OwnedTensor::Make(type);
  const TensorView output = result.view();
  // Where there is nothing to compute, the sizes beside the 0 may be of any size.
  if (output.nbytes() > 0) DT_RETURN_IF_ERROR(GetOp(n.op).reference({inputs, n.attrs, std::span(&output, 1), nullptr, {}}));
  result.storage.resize(output.nbytes());
  if (name.empty()) name = std::string(GetOp(n.op).name);
  return Replacement(std::vector<ValueId>{c.builder.AddConst(StrCat("folded.", name), type, std::move(result.storage))});
}

}  // namespace

Status FoldConstants(Module& module) {
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteModule(module, Rule));
  return OkStatus();
}

}  // namespace dovetail
