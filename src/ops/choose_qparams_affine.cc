#include <cfloat>
#include <limits>
#include <vector>

#include "ops/affine.h"

namespace dovetail {
namespace {

enum { kBlockSize, kMapping, kMin, kMax, kEps };

enum class Mapping : uint8_t { kAsymmetric, kAsymmetricLeastError, kSymmetric, kSymmetricNoClipping, kUnknown };
Mapping MappingOf(const Attr& a) {
  const std::string* name = a.get<std::string>();
  if (!name) return Mapping::kUnknown;
  if (*name == "asymmetric") return Mapping::kAsymmetric;
  if (*name == "asymmetric_least_error") return Mapping::kAsymmetricLeastError;
  if (*name == "symmetric") return Mapping::kSymmetric;
  if (*name == "symmetric_no_clipping_err") return Mapping::kSymmetricNoClipping;
  return Mapping::kUnknown;
}

Status Infer(const InferContext& c) {
  if (c.operand(0).dtype != DType::kF32) return InvalidArgument("choose_qparams_affine takes f32, not ", Name(c.operand(0).dtype));
  if (MappingOf(c.attr(kMapping)) == Mapping::kUnknown) return InvalidArgument("choose_qparams_affine with the mapping ", c.attr(kMapping).ToString());
  const int64_t min = c.attr(kMin).Int(), max = c.attr(kMax).Int();
  if (min >= max || min < INT16_MIN || max > UINT16_MAX) return InvalidArgument("choose_qparams_affine for integers from ", min, " to ", max);
  DT_ASSIGN_OR_RETURN(const Shape grid, BlockGrid(c.operand(0).shape, c.attr(kBlockSize), "choose_qparams_affine"));
  DT_RETURN_IF_ERROR(SetResult(c, 0, DType::kF32, grid));
  return SetResult(c, 1, DType::kI32, grid);
}

int32_t Rounded(float v, float min, float max) { return static_cast<int32_t>(std::isnan(v) ? min : std::clamp(std::nearbyint(v), min, max)); }

// `low` and `high` are the least and greatest element, and not beyond 0.
void Choose(Mapping mapping, float low, float high, float min, float max, float eps, float& scale, int32_t& zero_point) {
  const float middle = std::floor((max + min + 1) / 2);
  switch (mapping) {
    case Mapping::kAsymmetric:
      scale = std::max((high - low) / (max - min), eps);
      zero_point = Rounded(min - std::nearbyint(low / scale), min, max);
      return;
    case Mapping::kAsymmetricLeastError: {
      scale = std::max((high - low) / (max - min), eps);
      const float down = low / scale, up = high / scale;
      zero_point = Rounded((min + down) + (max + up) > 0 ? min - down : max - up, min, max);
      return;
    }
    case Mapping::kSymmetricNoClipping:
      scale = std::max(std::max(low / min, high / max), eps);
      zero_point = static_cast<int32_t>(middle);
      return;
    default:
      scale = std::max(std::max(-low, high) / ((max - min) / 2), eps);
      zero_point = static_cast<int32_t>(middle);
  }
}

Status Reference(const KernelContext& c) {
  const BlockIndex block_of(c.in(0), c.attr(kBlockSize));
  const Mapping mapping = MappingOf(c.attr(kMapping));
  const float min = static_cast<float>(c.attr(kMin).Int()), max = static_cast<float>(c.attr(kMax).Int());
  const size_t blocks = static_cast<size_t>(c.out(0).numel());
  std::vector<float> low(blocks, 0), high(blocks, 0);
  for (int64_t i = 0; i < c.in(0).numel(); ++i) {
    const size_t block = static_cast<size_t>(block_of(i));
    low[block] = std::min(low[block], c.in(0).as<float>()[i]);
    high[block] = std::max(high[block], c.in(0).as<float>()[i]);
  }
  for (size_t b = 0; b < blocks; ++b)
    Choose(mapping, low[b], high[b], min, max, static_cast<float>(c.attr(kEps).Number()), c.out(0).as<float>()[b], c.out(1).as<int32_t>()[b]);
  return OkStatus();
}

}  // namespace

// A scale and a zero point for each block, in the shape of the grid of blocks, from the block's least and greatest element, 0 included: low and
// high. As torchao's choose_qparams_affine (torchao/quantization/quant_primitives.py), in f32; no scale is below eps.
//   asymmetric                 scale = (high - low) / (max - min), zero_point = min - round(low / scale)
//   asymmetric_least_error     the same scale; the zero point from that end of the range at which it errs less (XNNPACK's qd8)
//   symmetric                  scale = max(-low, high) / ((max - min) / 2), zero_point = (max + min + 1) / 2
//   symmetric_no_clipping_err  scale = max(low / min, high / max), zero_point the same
constinit const OpDef kOpChooseQparamsAffine = {
    "choose_qparams_affine",
    "choose_qparams_affine(Tensor input, SymInt[] block_size, str mapping_type, int quant_min, int quant_max, float eps) -> (Tensor scale, Tensor zero_point)",
    "",
    "dovetail::choose_qparams_affine.out",
    kQuantized,
    Infer,
    Reference};

}  // namespace dovetail
