// Resizing of images, and pixels that become channels or come from them.
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

// The tensor with its last three dims split into five, those in another order, and joined again; what is before counts as channels.
ValueId Rearranged(Call& c, ValueId x, std::vector<Dim> split, std::vector<Dim> order, const std::vector<Dim>& last) {
  const Shape& shape = c.shape(x);
  std::vector<Dim> sizes(shape.begin(), shape.end() - 3);
  for (Dim d : sizes) split[0] = d * split[0];
  sizes.insert(sizes.end(), last.begin(), last.end());
  return c.Reshape(c.Emit(OpId::kPermute, {c.Reshape(x, std::move(split))}, {{"dims", std::move(order)}}), std::move(sizes));
}

constexpr int64_t kMaxFactor = 1 << 15;  // its square is still a size

// [..., C r r, H, W] to [..., C, H r, W r]
void PixelShuffle(Call& c) {
  const ValueId x = c.Tensor("self");
  const int64_t r = c.Int("upscale_factor");
  if (!c.ok()) return;
  const size_t rank = c.shape(x).rank();
  if (rank < 3 || r < 1 || r > kMaxFactor) return c.Fail(InvalidArgument("pixel_shuffle of ", c.type(x).ToString(), " by ", r));
  const Dim from = c.shape(x)[rank - 3], h = c.shape(x)[rank - 2], w = c.shape(x)[rank - 1];
  const auto channels = Dim::DivideExact(from, r * r);
  if (!channels) return c.Fail(Unsupported("pixel_shuffle of ", from.ToString(), " channels by ", r, "; they must be a multiple of ", r * r));
  c.Return(Rearranged(c, x, {*channels, r, r, h, w}, {0, 3, 1, 4, 2}, {*channels, h * Dim(r), w * Dim(r)}));
}

// [..., C, H r, W r] to [..., C r r, H, W]
void PixelUnshuffle(Call& c) {
  const ValueId x = c.Tensor("self");
  const int64_t r = c.Int("downscale_factor");
  if (!c.ok()) return;
  const size_t rank = c.shape(x).rank();
  if (rank < 3 || r < 1 || r > kMaxFactor) return c.Fail(InvalidArgument("pixel_unshuffle of ", c.type(x).ToString(), " by ", r));
  const Dim channels = c.shape(x)[rank - 3], from_h = c.shape(x)[rank - 2], from_w = c.shape(x)[rank - 1];
  const auto h = Dim::DivideExact(from_h, r), w = Dim::DivideExact(from_w, r);
  if (!h || !w)
    return c.Fail(Unsupported("pixel_unshuffle of an image of ", from_h.ToString(), " x ", from_w.ToString(), " by ", r, "; both must be multiples of ", r));
  c.Return(Rearranged(c, x, {channels, *h, r, *w, r}, {0, 2, 4, 1, 3}, {channels * Dim(r * r), *h, *w}));
}

constexpr Rule kRules[] = {
    {"aten.upsample_nearest2d.vec", Upsample<OpId::kUpsampleNearest2d>},
    {"aten.upsample_nearest2d.default", UpsampleToSize<OpId::kUpsampleNearest2d>},
    {"aten.upsample_bilinear2d.vec", Upsample<OpId::kUpsampleBilinear2d>},
    {"aten.upsample_bilinear2d.default", UpsampleToSize<OpId::kUpsampleBilinear2d>},
    {"aten.pixel_shuffle.default", PixelShuffle},
    {"aten.pixel_unshuffle.default", PixelUnshuffle},
};

}  // namespace

const std::span<const Rule> kResamplingRules = kRules;

}  // namespace dovetail::pt2
