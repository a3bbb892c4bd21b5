// Normalization.
#include <cmath>

#include "import/rules.h"
#include "ops/infer_util.h"

namespace dovetail::pt2 {
namespace {

ValueId PerChannel(Call& c, const std::string& name, const std::vector<double>& numbers, const Shape& shape) {
  std::vector<std::byte> data(numbers.size() * sizeof(float));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float f = static_cast<float>(numbers[i]);
    std::memcpy(data.data() + i * sizeof f, &f, sizeof f);
  }
  return c.ok() ? c.AddConst(name, TensorType(DType::kF32, shape), std::move(data)) : kNone;
}

// (x - mean) / sqrt(var + eps) over the dims.
ValueId Standardized(Call& c, ValueId x, const std::vector<Dim>& dims, double eps) {
  const DType dtype = c.type(x).dtype;
  const ValueId centered = c.Emit(OpId::kSub, {x, c.Emit(OpId::kMean, {x}, {{"dim", dims}, {"keepdim", true}})});
  const ValueId var = c.Emit(OpId::kMean, {c.Emit(OpId::kMul, {centered, centered})}, {{"dim", dims}, {"keepdim", true}});
  return c.Emit(OpId::kMul, {centered, c.Emit(OpId::kRsqrt, {c.Emit(OpId::kAdd, {var, c.ScalarTensor(eps, dtype)})})});
}

// y * weight + bias of each index of dimension 1; either may be absent.
ValueId ScaledByChannel(Call& c, ValueId y) {
  if (!c.ok()) return kNone;
  std::vector<Dim> sizes(c.shape(y).rank(), 1);
  sizes[1] = c.shape(y)[1];
  if (c.Has("weight")) y = c.Binary(OpId::kMul, y, c.Reshape(c.Tensor("weight"), sizes));
  if (c.Has("bias")) y = c.Binary(OpId::kAdd, y, c.Reshape(c.Tensor("bias"), sizes));
  return y;
}

// Over all dims behind the second, as rows.
ValueId StandardizedPlanes(Call& c, ValueId x) {
  if (!c.ok()) return kNone;
  const Shape shape = c.shape(x);
  const ValueId rows = c.Reshape(x, {shape[0], shape[1], Shape(shape.dims().subspan(2)).numel()});
  return c.Reshape(Standardized(c, rows, {-1}, c.Float("eps", 1e-5)), DimsOf(shape));
}

// Without running statistics: with those of the input, over all dims but the second.
void BatchNormOfInput(Call& c) {
  const ValueId x = c.Tensor("input");
  if (!c.ok()) return;
  const Shape shape = c.shape(x);
  if (shape.rank() < 2) return c.Fail(InvalidArgument("batch_norm of a tensor of rank ", shape.rank()));
  if (shape[0] == Dim(1)) return c.Return(ScaledByChannel(c, StandardizedPlanes(c, x)));
  std::vector<Dim> dims = {0};
  for (size_t i = 2; i < shape.rank(); ++i) dims.push_back(static_cast<int64_t>(i));
  c.Return(ScaledByChannel(c, Standardized(c, x, dims, c.Float("eps", 1e-5))));
}

// (x - mean) / sqrt(var + eps) * weight + bias as x * scale + shift. Scale and shift are computed here when all is constant.
void BatchNorm(Call& c) {
  if (!c.Has("running_mean")) return BatchNormOfInput(c);
  if (c.Bool("training", false)) return c.Fail(Unsupported(kTrainingMode));
  const ValueId x = c.Tensor("input"), mean = c.Tensor("running_mean"), var = c.Tensor("running_var");
  const ValueId weight = c.OptionalTensor("weight"), bias = c.OptionalTensor("bias");
  const double eps = c.Float("eps", 1e-5);
  if (!c.ok()) return;
  const size_t rank = c.shape(x).rank();
  if (rank < 2) return c.Fail(InvalidArgument("batch_norm of a tensor of rank ", rank));
  std::vector<Dim> sizes(rank, 1);
  sizes[1] = c.shape(x)[1];
  bool constant = c.type(x).dtype == DType::kF32;
  for (ValueId v : {mean, var, weight, bias}) {
    if (v == kNone) continue;
    if (!(c.shape(v) == Shape{sizes[1]})) return c.Fail(InvalidArgument("batch_norm of ", sizes[1].ToString(), " channels with ", c.type(v).ToString()));
    constant = constant && c.GetConstant(v);
  }
  if (constant) {
    const std::vector<double> m = Numbers(*c.GetConstant(mean)), s = Numbers(*c.GetConstant(var));
    const std::vector<double> w = weight == kNone ? std::vector<double>(m.size(), 1) : Numbers(*c.GetConstant(weight));
    const std::vector<double> b = bias == kNone ? std::vector<double>(m.size(), 0) : Numbers(*c.GetConstant(bias));
    std::vector<double> scale(m.size()), shift(m.size());
    for (size_t i = 0; i < m.size(); ++i) {
      scale[i] = w[i] / std::sqrt(s[i] + eps);
      shift[i] = b[i] - m[i] * scale[i];
    }
    for (ValueId v : {mean, var, weight, bias})
      if (v != kNone) c.MarkFolded(v);
    std::string name = c.GetConstant(mean)->name;
    name = name.substr(0, name.rfind("running_mean"));
    const ValueId scaled = c.Emit(OpId::kMul, {x, PerChannel(c, name + "scale", scale, Shape(sizes))});
    return c.Return(c.Emit(OpId::kAdd, {scaled, PerChannel(c, name + "shift", shift, Shape(sizes))}));
  }
  const DType dtype = c.type(x).dtype;
  const auto channel = [&](ValueId v) { return c.Convert(c.Reshape(v, sizes), dtype); };
  const ValueId factor = c.Emit(OpId::kRsqrt, {c.Emit(OpId::kAdd, {channel(var), c.ScalarTensor(eps, dtype)})});
  ValueId y = c.Emit(OpId::kMul, {c.Emit(OpId::kSub, {x, channel(mean)}), factor});
  if (weight != kNone) y = c.Emit(OpId::kMul, {y, channel(weight)});
  if (bias != kNone) y = c.Emit(OpId::kAdd, {y, channel(bias)});
  c.Return(y);
}

void InstanceNorm(Call& c) {
  if (!c.Bool("use_input_stats", true)) return BatchNorm(c);
  if (c.Has("running_mean")) return c.Fail(Unsupported(kTrainingMode));
  const ValueId x = c.Tensor("input");
  if (c.ok() && c.shape(x).rank() < 2) return c.Fail(InvalidArgument("instance_norm of a tensor of rank ", c.shape(x).rank()));
  c.Return(ScaledByChannel(c, StandardizedPlanes(c, x)));
}

std::vector<Dim> LastDims(size_t n) {
  std::vector<Dim> dims;
  for (size_t i = n; i > 0; --i) dims.push_back(-static_cast<int64_t>(i));
  return dims;
}

// v * (g / |v|), the norm over all dimensions but `dim`.
void WeightNorm(Call& c) {
  const ValueId v = c.Tensor("v"), g = c.Tensor("g");
  const int64_t dim = c.Int("dim", 0);
  std::vector<Dim> dims;
  for (size_t i = 0; i < c.shape(v).rank(); ++i)
    if (dim != static_cast<int64_t>(i)) dims.push_back(static_cast<int64_t>(i));
  const ValueId square = c.Emit(OpId::kSum, {c.Emit(OpId::kMul, {v, v})}, {{"dim", dims}, {"keepdim", dim >= 0}});
  c.Return(c.Emit(OpId::kMul, {v, c.Emit(OpId::kDiv, {g, c.Emit(OpId::kSqrt, {square})})}));
}

void LayerNorm(Call& c) {
  const ValueId x = c.Tensor("input");
  const size_t n = c.SymInts("normalized_shape").size();
  if (c.ok() && (n == 0 || n > c.shape(x).rank())) return c.Fail(InvalidArgument("layer_norm over ", n, " dimensions"));
  ValueId y = Standardized(c, x, LastDims(n), c.Float("eps", 1e-5));
  if (c.Has("weight")) y = c.Binary(OpId::kMul, y, c.Tensor("weight"));
  if (c.Has("bias")) y = c.Binary(OpId::kAdd, y, c.Tensor("bias"));
  c.Return(y);
}

// x * rsqrt(mean(x^2) + eps), the form that models write by hand.
void RmsNorm(Call& c) {
  const ValueId x = c.Tensor("input");
  const size_t n = c.SymInts("normalized_shape").size();
  if (!c.ok() || n == 0 || n > c.shape(x).rank()) return c.Fail(InvalidArgument("rms_norm over ", n, " dimensions"));
  const DType dtype = c.type(x).dtype;
  const double eps = c.Float("eps", 0x1p-23);  // torch's default: the machine epsilon of f32
  const ValueId square = c.Emit(OpId::kMean, {c.Emit(OpId::kPowTensorScalar, {x}, {{"exponent", 2}})}, {{"dim", LastDims(n)}, {"keepdim", true}});
  ValueId y = c.Emit(OpId::kMul, {x, c.Emit(OpId::kRsqrt, {c.Emit(OpId::kAdd, {square, c.ScalarTensor(eps, dtype)})})});
  if (c.Has("weight")) y = c.Binary(OpId::kMul, y, c.Tensor("weight"));
  c.Return(y);
}

void GroupNorm(Call& c) {
  const ValueId x = c.Tensor("input");
  const int64_t groups = c.Int(c.Has("num_groups") ? "num_groups" : "group");
  if (!c.ok()) return;
  const Shape shape = c.shape(x);
  if (shape.rank() < 2 || groups < 1) return c.Fail(InvalidArgument("group_norm of ", c.type(x).ToString()));
  const Dim elements = Shape(shape.dims().subspan(1)).numel();
  const auto per_group = Dim::DivideExact(elements, groups);
  if (!per_group) return c.Fail(InvalidArgument("group_norm of ", c.type(x).ToString(), " in ", groups, " groups"));
  const ValueId y = Standardized(c, c.Reshape(x, {shape[0], groups, *per_group}), {-1}, c.Float("eps", 1e-5));
  c.Return(ScaledByChannel(c, c.Reshape(y, DimsOf(shape))));
}

constexpr Rule kRules[] = {
    {"aten.batch_norm.default", BatchNorm},
    {"aten._native_batch_norm_legit_no_training.default", BatchNorm},
    {"aten._native_batch_norm_legit.no_stats", BatchNorm},
    {"aten.instance_norm.default", InstanceNorm},
    {"aten._weight_norm.default", WeightNorm},
    {"aten.layer_norm.default", LayerNorm},
    {"aten.native_layer_norm.default", LayerNorm},
    {"aten.rms_norm.default", RmsNorm},
    {"aten.group_norm.default", GroupNorm},
    {"aten.native_group_norm.default", GroupNorm},
};

}  // namespace

const std::span<const Rule> kNormalizationRules = kRules;

}  // namespace dovetail::pt2
