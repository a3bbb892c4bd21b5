#include "passes/passes.h"

#include "ir/verifier.h"

namespace dovetail {
namespace {

constexpr Pass kCore[] = {
    {"canonicalize", Canonicalize, "exports are full of views of views and casts to the same dtype; every pattern below is written without them"},
    {"recover_quantized", RecoverQuantized, "before fold_constants, which would make floats of integer weights, and before patterns that a dequantize hides"},
    {"fold_constants", FoldConstants, "weights behind a permute or cast become strided constants, small arithmetic on constants becomes data"},
    {"fuse_linear", FuseLinear, "decomposed exports spell linear as view, mm, view, add; needs the constants folded"},
    {"fold_batch_norm", FoldBatchNorm, "the scale and shift after a convolution go into its weights"},
    {"canonicalize_again", Canonicalize, "fuse_linear moves views together"},
    {"fuse_rms_norm", FuseRmsNorm, "before fuse_attention only for the reader: the two do not meet"},
    {"fuse_rope", FuseRope, "rotations must be one node before partitioning, else their slices break regions of simpler backends"},
    {"fuse_silu", FuseSilu, "x * sigmoid(x) to silu, and silu(a) * b to silu_mul"},
    {"fuse_attention", FuseAttention, "after fuse_linear, which leaves only true matrix products of two values"},
    {"causal_positions", CausalPositions, "a mask that is provably causal becomes a bound per row; needs attention with its mask as a bool"},
    {"remove_common_nodes", RemoveCommonNodes, "layers repeat the same mask and position arithmetic"},
};

constexpr Pass kOthers[] = {
    {"fuse_quantized_attention", FuseQuantizedAttention, "after quantization made rows of int8; the attention of the stock runtime runs in floats"},
    {"fuse_layer_norm", FuseLayerNorm, "one cpu kernel in place of nine XNNPACK nodes; fixed-point hardware has the operator, while a variance of 8 bits would be noise"},
    {"spell_out_fused", SpellOutFused, "before a quantization of the whole graph, which gives each value between operators its range"},
    {"unroll_recurrent", UnrollRecurrent, "the stock runtime has no scans; before partitioning, so that the steps' linears are delegated"},
    {"additive_masks", AdditiveMasks, "XNNPACK has no bool and no compare: the mask enters regions as floats, made once"},
    {"decompose_for_stock", DecomposeForStock, "the stock runtime has none of our fused operators; regions keep them"},
    {"attend_by_row", AttendByRow, "after partitioning, which leaves attention and the permutations around it outside regions; XNNPACK takes heads first"},
    {"expand_quantized", ExpandQuantized, "the cpu kernels compute on f32; after partitioning, since backends want to see the operator itself on integers"},
};

}  // namespace

std::span<const Pass> CorePasses() { return kCore; }

const Pass* FindPass(std::string_view name) {
  for (const Pass& p : kCore)
    if (p.name == name) return &p;
  for (const Pass& p : kOthers)
    if (p.name == name) return &p;
  return nullptr;
}

Status RunPass(const Pass& pass, Module& module) {
  const StateSets before = CollectStates(module);
  Status status = pass.run(module);
  if (status.ok()) status = Verify(module);
  if (status.ok()) status = CheckStates(before, CollectStates(module));
  if (status.ok()) return status;
  return std::move(status).While(StrCat("running pass ", pass.name));
}

}  // namespace dovetail
