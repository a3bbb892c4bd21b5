#include "quant/scheme.h"

namespace dovetail {
namespace {

constexpr Scheme kSchemes[] = {
    {"int8-dynamic", Activations::kDynamic, 8, 8, 0, "activations to i8 per row at run time, weights i8 per channel"},
    {"int8", Activations::kStatic, 8, 8, 0, "activations i8 per tensor by calibration, weights i8 per channel"},
    {"int4", Activations::kDynamic, 4, 4, 32, "activations to i8 per row at run time, weights 4 bits in blocks of 32"},
    {"int4-embedding8", Activations::kDynamic, 4, 8, 32, "int4 with embeddings, and heads tied to them, i8 per channel: larger and more exact"},
    {"int4-weight-only", Activations::kFloat, 4, 4, 32, "float activations, weights 4 bits in blocks of 32"},
    {"int8-weight-only", Activations::kFloat, 8, 8, 0, "float activations, weights i8 per channel"},
    {"qnn-8a8w", Activations::kFixed, 8, 8, 0, "for Qualcomm's NPU: every value u8 per tensor by calibration, states too, weights i8 per channel", DType::kU8},
    {"qnn-16a8w", Activations::kFixed, 8, 8, 0, "the same with values u16", DType::kU16},
    {"qnn-16a4w", Activations::kFixed, 4, 4, 32, "values u16, weights 4 bits: linears in blocks of 32, convolutions per channel", DType::kU16},
    {"qnn-fp16", Activations::kHalf, 0, 0, 0, "for Qualcomm's NPU in f16: nothing is quantized", DType::kNone},
};

}  // namespace

std::span<const Scheme> Schemes() { return kSchemes; }

const Scheme* FindScheme(std::string_view name) {
  for (const Scheme& s : kSchemes)
    if (s.name == name) return &s;
  return nullptr;
}

}  // namespace dovetail
