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
};

}  // namespace

std::span<const Scheme> Schemes() { return kSchemes; }

const Scheme* FindScheme(std::string_view name) {
  for (const Scheme& s : kSchemes)
    if (s.name == name) return &s;
  return nullptr;
}

}  // namespace dovetail
