// Operators that make tensors from numbers.
#include "import/rules.h"

namespace dovetail::pt2 {
namespace {

// torch's dtype for a tensor made of a number.
DType TypeOf(const Attr& number) { return number.is<bool>() ? DType::kBool : number.is<double>() ? DType::kF32 : DType::kI64; }

ValueId Filled(Call& c, std::vector<Dim> sizes, const Attr& number, DType dtype) {
  if (const Dim* d = number.get<Dim>(); d && !c.ItemSymbol(*d).empty()) {
    const ValueId v = c.ScalarTensor(number, dtype);
    return c.Emit(OpId::kExpand, {v}, {{"size", std::move(sizes)}});
  }
  if (const Dim* d = number.get<Dim>()) c.CheckDim(*d);
  return c.Emit(OpId::kFull, {}, {{"size", std::move(sizes)}, {"fill_value", number}, {"out_dtype", dtype}});
}

void Full(Call& c) {
  const Attr number = c.Scalar("fill_value");
  c.Return(Filled(c, c.SymInts("size"), number, c.Type("dtype", TypeOf(number))));
}
template <int kNumber>
void FullOf(Call& c) {
  c.Return(Filled(c, c.SymInts("size"), Attr(kNumber), c.Type("dtype", DType::kF32)));
}
void Like(Call& c, const Attr& number) {
  const TensorId self = c.Handle("self");
  if (c.is_complex(self)) return c.Fail(Unsupported("complex numbers in this operator"));
  const TensorType& t = c.handle_type(self);
  const std::vector<Dim> sizes = c.Has("size") ? c.SymInts("size") : std::vector<Dim>(t.shape.begin(), t.shape.end());
  c.Return(Filled(c, sizes, number, c.Type("dtype", t.dtype)));
}

void ScalarTensor(Call& c) {
  const Attr number = c.Scalar("s");
  c.Return(c.ScalarTensor(number, c.Type("dtype", TypeOf(number))));
}

void Arange(Call& c) {
  const Attr start = c.Has("start") ? c.Scalar("start") : Attr(0), end = c.Scalar("end"), step = c.Has("step") ? c.Scalar("step") : Attr(1);
  const bool floats = start.is<double>() || end.is<double>() || step.is<double>();
  for (const Attr* a : {&start, &end, &step})
    if (const Dim* d = a->get<Dim>()) c.CheckDim(*d);
  c.Return(c.Emit(OpId::kArange, {}, {{"start", start}, {"end", end}, {"step", step}, {"out_dtype", c.Type("dtype", floats ? DType::kF32 : DType::kI64)}}));
}

// Keeps the elements whose column - row is at most (tril) or at least (triu) `diagonal`.
void Triangle(Call& c, OpId compare) {
  const ValueId x = c.Tensor("self");
  const Shape& shape = c.shape(x);
  const int64_t diagonal = c.Int("diagonal", 0);
  if (!c.ok() || shape.rank() < 2) return c.Fail(InvalidArgument("a triangle of a tensor of rank below 2"));
  const Dim rows = shape[shape.rank() - 2], columns = shape.back();
  const ValueId row = c.Emit(OpId::kArange, {}, {{"start", diagonal}, {"end", rows + Dim(diagonal)}, {"out_dtype", DType::kI64}});
  const ValueId column = c.Emit(OpId::kArange, {}, {{"start", 0}, {"end", columns}, {"out_dtype", DType::kI64}});
  const ValueId keep = c.Emit(compare, {column, c.Reshape(row, {rows, 1})});
  c.Return(c.Emit(OpId::kWhere, {keep, x, c.ScalarTensor(c.type(x).dtype == DType::kBool ? Attr(false) : Attr(0), c.type(x).dtype)}));
}

constexpr Rule kRules[] = {
    {"aten.full.default", Full},
    {"aten.zeros.default", FullOf<0>},
    {"aten.ones.default", FullOf<1>},
    {"aten.empty.memory_format", FullOf<0>},
    {"aten.full_like.default", [](Call& c) { Like(c, c.Scalar("fill_value")); }},
    {"aten.new_full.default", [](Call& c) { Like(c, c.Scalar("fill_value")); }},
    {"aten.zeros_like.default", [](Call& c) { Like(c, 0); }},
    {"aten.ones_like.default", [](Call& c) { Like(c, 1); }},
    {"aten.new_zeros.default", [](Call& c) { Like(c, 0); }},
    {"aten.new_ones.default", [](Call& c) { Like(c, 1); }},
    {"aten.empty_like.default", [](Call& c) { Like(c, 0); }},
    {"aten.new_empty.default", [](Call& c) { Like(c, 0); }},
    {"aten.scalar_tensor.default", ScalarTensor},
    {"aten.arange.default", Arange},
    {"aten.arange.start", Arange},
    {"aten.arange.start_step", Arange},
    {"aten.tril.default", [](Call& c) { Triangle(c, OpId::kLe); }},
    {"aten.triu.default", [](Call& c) { Triangle(c, OpId::kGe); }},
};

}  // namespace

const std::span<const Rule> kCreationRules = kRules;

}  // namespace dovetail::pt2
