// Views, which share memory with their operand, and copies.
#include <algorithm>

#include "import/rules.h"
#include "ops/infer_util.h"

namespace dovetail::pt2 {
namespace {

bool IsContiguous(const TensorMeta& meta) {
  Dim expected = 1;
  for (size_t i = meta.sizes.size(); i-- > 0;) {
    if (meta.sizes[i] != Dim(1) && meta.strides[i] != expected) return false;
    expected = expected * meta.sizes[i];
  }
  return true;
}

// Whether torch gives a view when it reshapes a tensor of these strides: dims that are merged must lie one after the other.
bool ReshapesToView(const TensorMeta& from, const Shape& to) {
  if (from.strides.size() != from.sizes.size()) return false;
  if (IsContiguous(from)) return true;
  size_t next = to.rank();
  Dim chunk = 1, taken = 1, base = from.sizes.empty() ? Dim(1) : from.strides.back();
  for (size_t i = from.sizes.size(); i-- > 0;) {
    chunk = chunk * from.sizes[i];
    const bool ends = i == 0 || (from.sizes[i - 1] != Dim(1) && from.strides[i - 1] != chunk * base);
    if (!ends) continue;
    while (next > 0 && (taken != chunk || to[next - 1] == Dim(1))) taken = taken * to[--next];
    if (taken != chunk) return false;
    if (i == 0) break;
    chunk = taken = 1;
    base = from.strides[i - 1];
  }
  return next == 0;
}

// A view where torch gives one, else a copy: it matters when either is written later.
void ReturnReshaped(Call& c, TensorId self, std::vector<Dim> sizes) {
  const TensorId view = c.ViewSizes(self, std::move(sizes));
  if (!c.ok()) return;
  const auto meta = c.RecordedArg("self");
  if (!meta || ReshapesToView(*meta, c.LogicalShape(view))) return c.ReturnView(view);
  c.Return(c.Read(view), c.is_complex(self));
}

void View(Call& c) { c.ReturnView(c.ViewSizes(c.Handle("self"), c.SymInts("size"))); }
void Reshape(Call& c) { ReturnReshaped(c, c.Handle("self"), c.SymInts("shape")); }
void ReshapeAs(Call& c) { ReturnReshaped(c, c.Handle("self"), DimsOf(c.LogicalShape(c.Handle("other")))); }
void ViewAs(Call& c) { c.ReturnView(c.ViewSizes(c.Handle("self"), DimsOf(c.LogicalShape(c.Handle("other"))))); }

void Flatten(Call& c) {
  const TensorId self = c.Handle("self");
  const Shape shape = c.LogicalShape(self);
  if (shape.empty()) return ReturnReshaped(c, self, {1});
  const size_t first = c.Axis(c.Int("start_dim", 0), shape.rank()), last = c.Axis(c.Int("end_dim", -1), shape.rank());
  if (first > last) return c.Fail(InvalidArgument("flatten from dimension ", first, " to ", last));
  std::vector<Dim> sizes(shape.begin(), shape.begin() + first);
  Dim merged = 1;
  for (size_t i = first; i <= last; ++i) merged = merged * shape[i];
  sizes.push_back(merged);
  sizes.insert(sizes.end(), shape.begin() + last + 1, shape.end());
  if (first == last) return c.ReturnView(self);
  ReturnReshaped(c, self, std::move(sizes));
}

void Unflatten(Call& c) {
  const TensorId self = c.Handle("self");
  const Shape shape = c.LogicalShape(self);
  const size_t axis = c.Axis(c.Int("dim"), shape.rank());
  const std::vector<Dim> split = c.SymInts("sizes");
  if (!c.ok() || shape.empty()) return c.Fail(InvalidArgument("unflatten of a tensor of rank 0"));
  std::vector<Dim> sizes = DimsOf(shape);
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(axis));
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(axis), split.begin(), split.end());
  c.ReturnView(c.ViewSizes(self, std::move(sizes)));
}

TensorId Unsqueezed(Call& c, TensorId self, size_t axis) {
  std::vector<Dim> sizes = DimsOf(c.LogicalShape(self));
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(std::min(axis, sizes.size())), 1);
  return c.ViewSizes(self, std::move(sizes));
}
void Unsqueeze(Call& c) {
  const TensorId self = c.Handle("self");
  c.ReturnView(Unsqueezed(c, self, c.Axis(c.Int("dim"), c.LogicalShape(self).rank() + 1)));
}

// Drops the given dims where they are 1.
void ReturnSqueezed(Call& c, const std::vector<int64_t>& dims) {
  const TensorId self = c.Handle("self");
  const Shape shape = c.LogicalShape(self);
  uint32_t drop = 0;
  for (int64_t d : dims) drop |= 1u << c.Axis(d, shape.rank());
  std::vector<Dim> sizes;
  for (size_t i = 0; i < shape.rank(); ++i)
    if (!(drop >> i & 1) || shape[i] != Dim(1)) sizes.push_back(shape[i]);
  c.ReturnView(c.ViewSizes(self, std::move(sizes)));
}
void SqueezeAll(Call& c) {
  std::vector<int64_t> dims(c.LogicalShape(c.Handle("self")).rank());
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int64_t>(i);
  ReturnSqueezed(c, dims);
}

void Expand(Call& c) {
  const TensorId self = c.Handle("self");
  std::vector<Dim> sizes = c.SymInts("size");
  if (c.is_complex(self)) sizes.push_back(2);
  c.ReturnView(c.View(self, OpId::kExpand, {{"size", std::move(sizes)}}));
}
void ExpandAs(Call& c) {
  const TensorId self = c.Handle("self");
  std::vector<Dim> sizes = DimsOf(c.LogicalShape(c.Handle("other")));
  if (c.is_complex(self)) sizes.push_back(2);
  c.ReturnView(c.View(self, OpId::kExpand, {{"size", std::move(sizes)}}));
}

void ReturnTransposed(Call& c, int64_t dim0, int64_t dim1) {
  const TensorId self = c.Handle("self");
  const size_t rank = c.LogicalShape(self).rank();
  const size_t a = c.Axis(dim0, rank), b = c.Axis(dim1, rank);
  std::vector<Dim> order(rank);
  for (size_t i = 0; i < rank; ++i) order[i] = static_cast<int64_t>(i);
  if (rank > 0) std::swap(order[a], order[b]);
  c.ReturnView(a == b ? self : c.ViewPermuted(self, std::move(order)));
}
void Transpose(Call& c) { ReturnTransposed(c, c.Int("dim0"), c.Int("dim1")); }
void T(Call& c) {
  const size_t rank = c.LogicalShape(c.Handle("self")).rank();
  if (rank > 2) return c.Fail(InvalidArgument("t of a tensor of rank ", rank));
  if (rank < 2) c.ReturnView(c.Handle("self"));
  else ReturnTransposed(c, 0, 1);
}
// x.T: all dims in reverse.
void NumpyT(Call& c) {
  std::vector<Dim> dims;
  for (size_t i = c.LogicalShape(c.Handle("self")).rank(); i-- > 0;) dims.emplace_back(static_cast<int64_t>(i));
  c.ReturnView(c.ViewPermuted(c.Handle("self"), std::move(dims)));
}
void Permute(Call& c) { c.ReturnView(c.ViewPermuted(c.Handle("self"), c.SymInts("dims"))); }

void Slice(Call& c) {
  const TensorId self = c.Handle("self");
  const Shape shape = c.LogicalShape(self);
  const size_t axis = c.Axis(c.Int("dim", 0), shape.rank());
  const Dim start = c.SymIntOrItem("start", Dim(0)), end = c.SymIntOrItem("end", Dim(INT64_MAX));
  const int64_t step = c.Int("step", 1);
  if (!c.ok()) return;
  if (shape.empty()) return c.Fail(InvalidArgument("a slice of a tensor of rank 0"));
  if (!c.ItemSymbol(start).empty() || !c.ItemSymbol(end).empty()) {
    if (step != 1) return c.Fail(Unsupported("a step other than 1 from a position that is the element of a tensor"));
    return c.ReturnView(c.ViewSlice(self, axis, start, (end == Dim(INT64_MAX) ? shape[axis] : end) - start));
  }
  auto range = ResolveSlice(shape[axis], start, end, step);
  if (!range.ok()) return c.Fail(std::move(range).status());
  c.ReturnView(c.ViewSlice(self, axis, range->start, range->length, range->step));
}

// A position that may be negative, or the element of a tensor.
Dim Position(Dim at, Dim size) { return at.is_constant() && at.value() < 0 ? at + size : at; }

void Narrow(Call& c) {
  const TensorId self = c.Handle("self");
  const Shape shape = c.LogicalShape(self);
  const size_t axis = c.Axis(c.Int("dim"), shape.rank());
  if (c.ok() && shape.empty()) return c.Fail(InvalidArgument("narrow of a tensor of rank 0"));
  c.ReturnView(c.ViewSlice(self, axis, Position(c.SymIntOrItem("start"), shape[axis]), c.SymInt("length")));
}

TensorId Selected(Call& c, TensorId self, size_t axis, Dim index) {
  const TensorId row = c.ViewSlice(self, axis, index, 1);
  std::vector<Dim> sizes = DimsOf(c.LogicalShape(row));
  if (axis < sizes.size()) sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(axis));
  return c.ViewSizes(row, std::move(sizes));
}
void Select(Call& c) {
  const TensorId self = c.Handle("self");
  const Shape shape = c.LogicalShape(self);
  const size_t axis = c.Axis(c.Int("dim"), shape.rank());
  if (c.ok() && shape.empty()) return c.Fail(InvalidArgument("select of a tensor of rank 0"));
  const Dim at = Position(c.SymIntOrItem("index"), shape[axis]), size = shape[axis];
  if (at.is_constant() && size.is_constant() && (at.value() < 0 || at.value() >= size.value()))
    return c.Fail(OutOfRange("index ", at.value(), " of a dimension of size ", size.value()));
  c.ReturnView(Selected(c, self, axis, at));
}

// How many results the node names.
size_t ListedOutputs(const Call& c) { return c.node().outputs.size() == 1 ? c.node().outputs[0].items.size() : c.node().outputs.size(); }

void ReturnSplit(Call& c, TensorId self, size_t axis, const std::vector<Dim>& sizes) {
  Dim start = 0;
  for (Dim size : sizes) {
    c.ReturnView(c.ViewSlice(self, axis, start, size));
    start = start + size;
  }
}
void SplitWithSizes(Call& c) {
  const TensorId self = c.Handle("self");
  ReturnSplit(c, self, c.Axis(c.Int("dim", 0), c.LogicalShape(self).rank()), c.SymInts("split_sizes"));
}
void SplitEvenly(Call& c, TensorId self, size_t axis, Dim size) {
  const size_t n = ListedOutputs(c);
  if (!c.ok() || n == 0 || n > UINT16_MAX) return c.Fail(Unsupported("a split whose number of results is not known"));
  std::vector<Dim> sizes(n, size);
  sizes.back() = c.LogicalShape(self)[axis] - size * Dim(static_cast<int64_t>(n - 1));
  ReturnSplit(c, self, axis, sizes);
}
void Split(Call& c) {
  const TensorId self = c.Handle("self");
  SplitEvenly(c, self, c.Axis(c.Int("dim", 0), c.LogicalShape(self).rank()), c.SymInt("split_size"));
}
void Chunk(Call& c) {
  const TensorId self = c.Handle("self");
  const size_t axis = c.Axis(c.Int("dim", 0), c.LogicalShape(self).rank());
  const int64_t chunks = c.Int("chunks");
  if (c.ok() && chunks < 1) return c.Fail(InvalidArgument("chunk into ", chunks));
  if (c.ok()) SplitEvenly(c, self, axis, CeilDiv(c.LogicalShape(self)[axis], chunks));
}
void Unbind(Call& c) {
  const TensorId self = c.Handle("self");
  const size_t axis = c.Axis(c.Int("dim", 0), c.LogicalShape(self).rank());
  const size_t n = ListedOutputs(c);
  if (c.ok() && c.LogicalShape(self)[axis] != Dim(static_cast<int64_t>(n)))
    return c.Fail(Unsupported("unbind of a dimension of size ", c.LogicalShape(self)[axis].ToString()));
  for (size_t i = 0; c.ok() && i < n; ++i) c.ReturnView(Selected(c, self, axis, static_cast<int64_t>(i)));
}

void Same(Call& c) { c.ReturnView(c.Handle("self")); }
void Copy(Call& c) {
  const TensorId self = c.Handle("self");
  c.Return(c.Read(self), c.is_complex(self));
}
void Contiguous(Call& c) {
  const auto meta = c.RecordedArg("self");
  if (meta && meta->strides.size() == meta->sizes.size() && !IsContiguous(*meta)) Copy(c);
  else Same(c);
}

// The tensor itself if nothing changes, as in torch.
void ReturnConverted(Call& c, DType dtype, bool copy) {
  const TensorId self = c.Handle("self");
  if (c.is_complex(self) || IsComplex(dtype)) {
    if (!c.is_complex(self) || !(IsComplex(dtype) || dtype == DType::kF32)) return c.Fail(Unsupported("a conversion between real and complex numbers"));
    return copy ? Copy(c) : Same(c);
  }
  if (dtype == c.handle_type(self).dtype && !copy) return Same(c);
  c.Return(c.Convert(c.Read(self), dtype));
}
DType OwnType(Call& c) { return c.handle_type(c.Handle("self")).dtype; }
void To(Call& c) { ReturnConverted(c, c.Type("dtype", OwnType(c)), c.Bool("copy", false) || c.Has("memory_format")); }
void ToCopy(Call& c) { ReturnConverted(c, c.Type("dtype", OwnType(c)), true); }
void ToOther(Call& c) { ReturnConverted(c, c.handle_type(c.Handle("other")).dtype, c.Bool("copy", false)); }

void ViewAsReal(Call& c) {
  const TensorId self = c.Handle("self");
  if (c.ok() && !c.is_complex(self)) return c.Fail(InvalidArgument("view_as_real of a real tensor"));
  c.ReturnView(c.AsComplex(self, false));
}
void ViewAsComplex(Call& c) {
  const TensorId self = c.Handle("self");
  const TensorType& t = c.handle_type(self);
  if (c.ok() && (t.dtype != DType::kF32 || t.shape.empty() || t.shape.back() != Dim(2)))
    return c.Fail(Unsupported("view_as_complex of ", t.ToString(), "; only of f32[...,2]"));
  c.ReturnView(c.AsComplex(self, true));
}
void Part(Call& c, int64_t part) {
  const TensorId self = c.Handle("self");
  if (!c.is_complex(self)) return c.ReturnView(self);
  const TensorId real = c.AsComplex(self, false);
  c.ReturnView(Selected(c, real, c.LogicalShape(self).rank(), part));
}

void RepeatInterleave(Call& c) {
  const TensorId self = c.Handle("self");
  const Shape shape = c.LogicalShape(self);
  const Dim repeats = c.SymInt("repeats");
  if (!c.Has("dim") && shape.rank() != 1) return c.Fail(Unsupported("repeat_interleave without a dim"));
  const size_t axis = c.Axis(c.Int("dim", 0), shape.rank());
  if (!c.ok() || shape.empty() || shape.rank() >= kMaxRank || c.is_complex(self)) return c.Fail(Unsupported("repeat_interleave of this tensor"));
  std::vector<Dim> sizes = DimsOf(shape), wide, flat = sizes;
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(axis) + 1, 1);
  wide = sizes;
  wide[axis + 1] = repeats;
  flat[axis] = flat[axis] * repeats;
  const ValueId narrow = c.Reshape(c.Read(self), std::move(sizes));
  c.Return(c.Reshape(c.Emit(OpId::kExpand, {narrow}, {{"size", std::move(wide)}}), std::move(flat)));
}

void Repeat(Call& c) {
  const ValueId self = c.Tensor("self");
  const std::vector<Dim> repeats = c.SymInts("repeats");
  if (!c.ok()) return;
  const Shape& shape = c.shape(self);
  if (repeats.size() < shape.rank()) return c.Fail(InvalidArgument("repeat with fewer numbers than dimensions"));
  const size_t added = repeats.size() - shape.rank();
  std::vector<Dim> from, wide, to;
  for (size_t i = 0; i < repeats.size(); ++i) {
    const Dim size = i < added ? Dim(1) : shape[i - added];
    if (repeats[i] != Dim(1) && size != Dim(1)) {
      from.push_back(1);
      wide.push_back(repeats[i]);
    }
    from.push_back(size);
    wide.push_back(size == Dim(1) ? repeats[i] : size);
    to.push_back(size * repeats[i]);
  }
  if (from.size() > kMaxRank) return c.Fail(Unsupported("repeat along so many dimensions"));
  c.Return(c.Reshape(c.Emit(OpId::kExpand, {c.Reshape(self, std::move(from))}, {{"size", std::move(wide)}}), std::move(to)));
}

void Stack(Call& c) {
  std::vector<ValueId> tensors = c.Tensors("tensors");
  if (!c.ok() || tensors.empty()) return c.Fail(InvalidArgument("stack of no tensors"));
  const size_t axis = c.Axis(c.Int("dim", 0), c.shape(tensors[0]).rank() + 1);
  DType dtype = DType::kNone;
  for (ValueId v : tensors) dtype = Promote(dtype, c.type(v).dtype);
  for (ValueId& v : tensors) {
    std::vector<Dim> sizes = DimsOf(c.shape(v));
    sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(std::min(axis, sizes.size())), 1);
    v = c.Convert(c.Reshape(v, std::move(sizes)), dtype);
  }
  c.Return(c.Emit(OpId::kCat, std::move(tensors), {{"dim", static_cast<int64_t>(axis)}}));
}
ValueId Joined(Call& c, std::vector<ValueId> tensors, int64_t dim) {
  DType dtype = DType::kNone;
  for (ValueId v : tensors) dtype = Promote(dtype, c.type(v).dtype);
  for (ValueId& v : tensors) v = c.Convert(v, dtype);
  return c.Emit(OpId::kCat, std::move(tensors), {{"dim", dim}});
}
void Cat(Call& c) { c.Return(Joined(c, c.Tensors("tensors"), c.Int("dim", 0))); }

// The difference of neighbours, n times.
void Diff(Call& c) {
  const ValueId before = c.OptionalTensor("prepend"), after = c.OptionalTensor("append");
  ValueId x = c.Tensor("self");
  const size_t axis = c.Axis(c.Int("dim", -1), c.shape(x).rank());
  const int64_t n = c.Int("n", 1), dim = static_cast<int64_t>(axis);
  if (c.ok() && c.shape(x).empty()) return c.Fail(InvalidArgument("diff of a tensor of rank 0"));
  constexpr int64_t kMost = 64;
  if (n < 0 || n > kMost) return c.Fail(n < 0 ? InvalidArgument("diff with n = ", n) : Unsupported("diff with n = ", n, "; at most ", kMost));
  if (before != kNone || after != kNone) {
    std::vector<ValueId> parts;
    for (ValueId v : {before, x, after})
      if (v != kNone) parts.push_back(v);
    x = Joined(c, std::move(parts), dim);
  }
  for (int64_t i = 0; i < n && c.ok(); ++i) {
    const Dim size = c.shape(x)[axis];
    if (size == Dim(0)) break;
    const ValueId left = c.Emit(OpId::kSlice, {x}, {{"dim", dim}, {"start", 0}, {"end", size - 1}});
    const ValueId right = c.Emit(OpId::kSlice, {x}, {{"dim", dim}, {"start", 1}, {"end", size}});
    x = c.Emit(c.type(x).dtype == DType::kBool ? OpId::kNe : OpId::kSub, {right, left});
  }
  c.Return(x);
}

constexpr Rule kRules[] = {
    {"aten.view.default", View},
    {"aten._unsafe_view.default", View},
    {"aten.view_copy.default", View},
    {"aten.view_as.default", ViewAs},
    {"aten.reshape.default", Reshape},
    {"aten.reshape_as.default", ReshapeAs},
    {"aten.flatten.using_ints", Flatten},
    {"aten.unflatten.int", Unflatten},
    {"aten.unsqueeze.default", Unsqueeze},
    {"aten.squeeze.default", SqueezeAll},
    {"aten.squeeze.dim", [](Call& c) { ReturnSqueezed(c, {c.Int("dim")}); }},
    {"aten.squeeze.dims", [](Call& c) { ReturnSqueezed(c, c.Ints("dim", {})); }},
    {"aten.expand.default", Expand},
    {"aten.expand_copy.default", Expand},
    {"aten.expand_as.default", ExpandAs},
    {"aten.transpose.int", Transpose},
    {"aten.t.default", T},
    {"aten.numpy_T.default", NumpyT},
    {"aten.mT.default", [](Call& c) { ReturnTransposed(c, -2, -1); }},
    {"aten.swapaxes.default", [](Call& c) { ReturnTransposed(c, c.Int("axis0"), c.Int("axis1")); }},
    {"aten.permute.default", Permute},
    {"aten.permute_copy.default", Permute},
    {"aten.slice.Tensor", Slice},
    {"aten.slice_copy.Tensor", Slice},
    {"aten.narrow.default", Narrow},
    {"aten.select.int", Select},
    {"aten.select_copy.int", Select},
    {"aten.split.Tensor", Split},
    {"aten.split_with_sizes.default", SplitWithSizes},
    {"aten.split_with_sizes_copy.default", SplitWithSizes},
    {"aten.chunk.default", Chunk},
    {"aten.unbind.int", Unbind},
    {"aten.alias.default", Same},
    {"aten.detach.default", Same},
    {"aten.detach_.default", Same},
    {"aten.alias_copy.default", Copy},
    {"aten.clone.default", Copy},
    {"aten.lift_fresh_copy.default", Copy},
    {"aten.contiguous.default", Contiguous},
    {"aten.to.dtype", To},
    {"aten.to.dtype_layout", To},
    {"aten.to.device", To},
    {"aten.to.prim_Device", To},
    {"aten.to.other", ToOther},
    {"aten.type_as.default", ToOther},
    {"aten._to_copy.default", ToCopy},
    {"aten.view_as_real.default", ViewAsReal},
    {"aten.view_as_complex.default", ViewAsComplex},
    {"aten.real.default", [](Call& c) { Part(c, 0); }},
    {"aten.imag.default", [](Call& c) { Part(c, 1); }},
    {"aten.repeat_interleave.self_int", RepeatInterleave},
    {"aten.repeat.default", Repeat},
    {"aten.stack.default", Stack},
    {"aten.cat.default", Cat},
    {"aten.diff.default", Diff},
};

}  // namespace

const std::span<const Rule> kViewRules = kRules;

}  // namespace dovetail::pt2
