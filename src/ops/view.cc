#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {
namespace {

// Whether an expression holds more than sums and products, so that inequality of two forms says little.
bool IsOpaque(Dim d) { return !d.is_constant() && d.ToString().find('(') != std::string::npos; }

Status Mismatch(const Shape& from, std::span<const Dim> sizes) {
  std::string text;
  for (Dim d : sizes) text += (text.empty() ? "" : ",") + d.ToString();
  return InvalidArgument("view: shape [", text, "] does not hold the elements of [", from.ToString(), "]");
}

Status Infer(const InferContext& ctx) {
  const Shape& from = ctx.operand(0).shape;
  const std::span<const Dim> sizes = DimsOf(ctx.attr(0));
  if (sizes.size() > kMaxRank) return Unsupported("view to rank ", sizes.size(), "; at most ", kMaxRank, " dimensions are supported");
  // Dims that stand on both sides cancel, so that what remains is mostly constant.
  Shape rest = from, to;
  Dim product = 1;
  std::optional<size_t> inferred;
  for (size_t i = 0; i < sizes.size(); ++i) {
    to.push_back(sizes[i]);
    if (sizes[i] == Dim(-1)) {
      if (inferred) return InvalidArgument("view: only one size can be -1");
      inferred = i;
      continue;
    }
    if (sizes[i].is_constant() && sizes[i].value() < 0) return InvalidArgument("view: negative size ", sizes[i].value());
    size_t same = 0;
    while (same < rest.rank() && (rest[same] != sizes[i] || rest[same] == Dim(0))) ++same;
    if (same < rest.rank()) rest.erase(same);
    else product = product * sizes[i];
  }
  const Dim elements = rest.numel();
  if (!inferred) {
    if (elements != product && !IsOpaque(elements - product)) return Mismatch(from, sizes);
    return SetMovedResult(ctx, to);
  }
  if (product == Dim(0)) return InvalidArgument("view: a size of -1 is not determined, since another size is 0");
  if (auto quotient = Dim::DivideExact(elements, product)) {
    to[*inferred] = *quotient;
  } else {
    if (elements.is_constant() && product.is_constant()) return Mismatch(from, sizes);
    // That nothing remains is the exporter's guarantee; with the sizes known, at run time, it is checked.
    to[*inferred] = Dim::FloorDiv(elements, product);
  }
  return SetMovedResult(ctx, to);
}

Status Reference(const KernelContext& ctx) {
  if (ctx.out().data != ctx.in(0).data) CopyBytes(ctx.out().data, ctx.in(0).data, ctx.out().nbytes());
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpView = {"view",
                                 "view(Tensor self, SymInt[] size) -> Tensor",
                                 "aten.view.default aten._unsafe_view.default aten.view_copy.default",
                                 "aten::view_copy.out",
                                 kMetadataOnly | kDataMovement,
                                 Infer,
                                 Reference};

}  // namespace dovetail
