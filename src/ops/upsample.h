// Resizing of the last two dims of [N, C, H, W]: what the upsample operators share.
#pragma once

#include <cmath>

#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {

// [N, C, H', W'] of exactly one of `sizes` (int[2], the new sizes) and `factors` (float[2], the ratios to the old); the other is None.
// A symbolic size takes only factors that are a multiple of 1/1024.
Status InferUpsample(const InferContext& ctx, const Attr& sizes, const Attr& factors, std::string_view what);

// Steps in the input for one step in the output, along dim `i` of the two; of a given factor its inverse, not what the sizes come to.
template <class V>
V UpsampleStep(const Attr& factors, size_t i, int64_t from, int64_t to) {
  const auto* list = factors.get<std::vector<double>>();
  return list ? static_cast<V>(1.0 / (*list)[i]) : static_cast<V>(from) / static_cast<V>(to);
}

}  // namespace dovetail
