// Resizing of images.
#include "import/rules.h"

namespace dovetail::pt2 {
namespace {

// A float[] argument; None when absent.
Attr Floats(Call& c, std::string_view name) {
  const Arg* arg = c.Find(name);
  if (!arg) return {};
  std::vector<double> numbers;
  if (arg->type != ArgType::kFloats && arg->type != ArgType::kInts) c.Fail(Corrupt("the argument '", name, "' is not a list of numbers"));
  for (const Arg& item : arg->items) numbers.push_back(item.type == ArgType::kFloat ? item.number : static_cast<double>(item.integer));
  return Attr(std::move(numbers));
}
Attr OutputSize(Call& c) { return c.Has("output_size") ? Attr(c.SymInts("output_size")) : Attr(); }

template <OpId kOp>
void Resample(Call& c, ValueId x, Attr size, Attr factors) {
  if constexpr (kOp == OpId::kUpsampleNearest2d)
    return c.Return(c.Emit(kOp, {x}, {{"output_size", std::move(size)}, {"scale_factors", std::move(factors)}}));
  c.Return(c.Emit(kOp, {x}, {{"output_size", std::move(size)}, {"align_corners", c.Bool("align_corners", false)}, {"scale_factors", std::move(factors)}}));
}
template <OpId kOp>
void Upsample(Call& c) {
  const ValueId x = c.Tensor("input");
  Resample<kOp>(c, x, OutputSize(c), Floats(c, "scale_factors"));
}
// With the sizes, and also the factors that they were made of: where given, those are what positions are computed with.
template <OpId kOp>
void UpsampleToSize(Call& c) {
  const ValueId x = c.Tensor("self");
  if (!c.Has("scales_h") && !c.Has("scales_w")) return Resample<kOp>(c, x, OutputSize(c), {});
  if (!c.Has("scales_h") || !c.Has("scales_w")) return c.Fail(Unsupported("a scale factor for one of two dimensions"));
  Resample<kOp>(c, x, {}, Attr(std::vector<double>{c.Float("scales_h"), c.Float("scales_w")}));
}

constexpr Rule kRules[] = {
    {"aten.upsample_nearest2d.vec", Upsample<OpId::kUpsampleNearest2d>},
    {"aten.upsample_nearest2d.default", UpsampleToSize<OpId::kUpsampleNearest2d>},
    {"aten.upsample_bilinear2d.vec", Upsample<OpId::kUpsampleBilinear2d>},
    {"aten.upsample_bilinear2d.default", UpsampleToSize<OpId::kUpsampleBilinear2d>},
};

}  // namespace

const std::span<const Rule> kResamplingRules = kRules;

}  // namespace dovetail::pt2
