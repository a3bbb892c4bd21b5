#include "import/call.h"

#include "ops/infer_util.h"

namespace dovetail::pt2 {

void Call::Fail(Status status) {
  if (ok() && !status.ok()) status_ = std::move(status);
}

// Arguments.

const Arg* Call::Find(std::string_view name) const {
  for (const NamedArg& a : node_.inputs)
    if (a.name == name) return a.value.type == ArgType::kNone ? nullptr : &a.value;
  return nullptr;
}

const Arg* Call::Require(std::string_view name) {
  const Arg* arg = Find(name);
  if (!arg) Fail(Corrupt("the argument '", name, "' is missing"));
  return ok() ? arg : nullptr;
}

Status Call::Wrong(std::string_view name, std::string_view expected) { return Corrupt("the argument '", name, "' is not ", expected); }

TensorId Call::Lookup(const Arg& arg, std::string_view name) {
  if (arg.type != ArgType::kTensor) {
    Fail(Wrong(name, "a tensor"));
    return kNone;
  }
  auto it = context_.tensors.find(arg.text);
  if (it == context_.tensors.end()) {
    Fail(Corrupt("the argument '", name, "' is '", arg.text, "', which is no tensor before this node"));
    return kNone;
  }
  if (it->second == kNone) poisoned_ = true;
  return it->second;
}

TensorId Call::Handle(std::string_view name) {
  const Arg* arg = Require(name);
  return arg ? Lookup(*arg, name) : kNone;
}

ValueId Call::Tensor(std::string_view name) {
  const TensorId t = Handle(name);
  if (is_complex(t)) Fail(Unsupported("complex numbers in this operator"));
  return Read(t);
}

ValueId Call::OptionalTensor(std::string_view name) { return Has(name) ? Tensor(name) : kNone; }

bool Call::IsTensor(std::string_view name) const {
  const Arg* arg = Find(name);
  return arg && arg->type == ArgType::kTensor;
}

std::vector<TensorId> Call::Handles(std::string_view name) {
  std::vector<TensorId> handles;
  const Arg* arg = Require(name);
  if (arg && arg->type != ArgType::kTensors) Fail(Wrong(name, "a list of tensors"));
  for (size_t i = 0; ok() && i < arg->items.size(); ++i)
    handles.push_back(arg->items[i].type == ArgType::kNone ? kNone : Lookup(arg->items[i], name));
  return handles;
}

std::vector<ValueId> Call::Tensors(std::string_view name) {
  std::vector<ValueId> values;
  for (TensorId t : Handles(name)) {
    if (is_complex(t)) Fail(Unsupported("complex numbers in this operator"));
    values.push_back(Read(t));
  }
  return values;
}

std::string Call::ItemSymbol(Dim d) const {
  if (!d.is_constant())
    for (const std::string& s : d.symbols())
      if (context_.items.contains(s)) return s;
  return {};
}

bool Call::CheckDim(Dim d) {
  if (d.is_constant()) return true;
  for (const std::string& s : d.symbols()) {
    if (context_.input_symbols.contains(s)) continue;
    const std::string of = d.symbol() == s ? StrCat("size ", s, " is ") : StrCat("size ", d.ToString(), " depends on ", s, ", ");
    const std::string_view what = context_.items.contains(s)
                                      ? "the contents of a tensor (.item()); a tensor element may be a position to slice or select at, but not a size"
                                      : "a number that no input's shape gives";
    Fail(Unsupported("a data-dependent shape that can't be bounded: ", of, what, ": take the size from the shape of an input instead"));
    return false;
  }
  return true;
}

std::optional<Dim> Call::DimOf(const Arg& arg, std::string_view name, bool item_allowed) {
  if (arg.type == ArgType::kInt) return Dim(arg.integer);
  if (arg.type != ArgType::kSymInt) {
    Fail(Wrong(name, "an integer"));
    return std::nullopt;
  }
  auto d = context_.program.SymInt(arg.text);
  if (!d.ok()) {
    Fail(std::move(d).status());
    return std::nullopt;
  }
  if (item_allowed && !ItemSymbol(*d).empty()) return *d;
  return CheckDim(*d) ? std::optional(*d) : std::nullopt;
}

Dim Call::SymIntOrItem(std::string_view name, std::optional<Dim> otherwise) {
  if (otherwise && !Has(name)) return *otherwise;
  const Arg* arg = Require(name);
  return arg ? DimOf(*arg, name, true).value_or(Dim(0)) : Dim(0);
}

Dim Call::SymInt(std::string_view name, std::optional<Dim> otherwise) {
  const Dim d = SymIntOrItem(name, otherwise);
  return CheckDim(d) ? d : Dim(0);
}

int64_t Call::Int(std::string_view name, std::optional<int64_t> otherwise) {
  if (otherwise && !Has(name)) return *otherwise;
  const Dim d = SymInt(name);
  if (!d.is_constant()) Fail(Unsupported("a symbolic '", name, "' (", d.ToString(), "); it must be a constant"));
  return d.is_constant() ? d.value() : 0;
}

std::vector<Dim> Call::SymInts(std::string_view name) {
  std::vector<Dim> dims;
  const Arg* arg = Require(name);
  if (!arg) return dims;
  if (arg->type == ArgType::kInt || arg->type == ArgType::kSymInt) return {DimOf(*arg, name, false).value_or(Dim(0))};
  if (arg->type != ArgType::kInts) Fail(Wrong(name, "a list of integers"));
  for (size_t i = 0; ok() && i < arg->items.size(); ++i) dims.push_back(DimOf(arg->items[i], name, false).value_or(Dim(0)));
  return dims;
}

std::vector<int64_t> Call::Ints(std::string_view name, std::vector<int64_t> otherwise) {
  if (!Has(name)) return otherwise;
  std::vector<int64_t> ints;
  for (Dim d : SymInts(name)) {
    if (!d.is_constant()) Fail(Unsupported("a symbolic '", name, "' (", d.ToString(), "); it must be constant"));
    ints.push_back(d.is_constant() ? d.value() : 0);
  }
  return ok() ? ints : otherwise;
}

double Call::Float(std::string_view name, std::optional<double> otherwise) {
  if (otherwise && !Has(name)) return *otherwise;
  const Arg* arg = Require(name);
  if (!arg) return 0;
  if (arg->type == ArgType::kFloat) return arg->number;
  if (arg->type == ArgType::kInt) return static_cast<double>(arg->integer);
  Fail(Wrong(name, "a number"));
  return 0;
}

bool Call::Bool(std::string_view name, bool otherwise) {
  const Arg* arg = Find(name);
  if (!arg) return otherwise;
  if (arg->type != ArgType::kBool) Fail(Wrong(name, "a bool"));
  return arg->integer != 0;
}

std::string_view Call::String(std::string_view name, std::string_view otherwise) {
  const Arg* arg = Find(name);
  if (!arg) return otherwise;
  if (arg->type != ArgType::kString) Fail(Wrong(name, "a string"));
  return arg->text;
}

Attr Call::Scalar(std::string_view name) {
  const Arg* arg = Find(name);
  if (!arg) return {};
  if (arg->type == ArgType::kBool) return Attr(arg->integer != 0);
  if (arg->type == ArgType::kFloat) return Attr(arg->number);
  if (arg->type == ArgType::kSymOther) {
    Fail(Unsupported("the symbolic number '", arg->text, "', which is no integer"));
    return {};
  }
  const auto d = DimOf(*arg, name, true);
  return d ? Attr(*d) : Attr();
}

DType Call::Type(std::string_view name, DType otherwise) {
  const Arg* arg = Find(name);
  if (!arg) return otherwise;
  if (arg->type != ArgType::kDType) {
    Fail(Wrong(name, "a dtype"));
    return otherwise;
  }
  const DType t = DTypeFromFile(arg->integer);
  if (t == DType::kNone) Fail(Unsupported("the dtype ", DTypeNameInFile(arg->integer)));
  return t;
}

// Types.

const TensorType& Call::type(ValueId v) const {
  static const TensorType kEmpty;
  return v == kNone ? kEmpty : context_.graph.type(v);
}

const TensorType& Call::handle_type(TensorId t) const {
  static const TensorType kEmpty;
  return t == kNone ? kEmpty : context_.aliases.type(t);
}

Shape Call::LogicalShape(TensorId t) const {
  Shape s = handle_type(t).shape;
  if (is_complex(t) && !s.empty()) s.erase(s.rank() - 1);
  return s;
}

size_t Call::Axis(int64_t axis, size_t rank) {
  auto a = NormalizeAxis(axis, rank);
  if (a.ok()) return *a;
  Fail(std::move(a).status());
  return 0;
}

// Values.

ValueId Call::Read(TensorId t) {
  if (t == kNone || !ok()) return kNone;
  auto v = context_.aliases.Read(t);
  if (v.ok()) return *v;
  Fail(std::move(v).status());
  return kNone;
}

std::vector<ValueId> Call::EmitWith(OpId op, std::vector<ValueId> operands, std::vector<Attr> attrs, size_t results) {
  if (ok()) {
    auto r = context_.builder.EmitWith(op, std::move(operands), std::move(attrs), results);
    if (r.ok()) return *r;
    Fail(std::move(r).status());
  }
  return std::vector<ValueId>(results, kNone);
}

std::vector<ValueId> Call::EmitAll(OpId op, std::vector<ValueId> operands, NamedAttrs attrs) {
  auto filled = FillAttrs(op, attrs);
  if (!filled.ok()) {
    Fail(std::move(filled).status());
    filled = std::vector<Attr>();
  }
  return EmitWith(op, std::move(operands), std::move(*filled), GetSchema(op).results.size());
}

ValueId Call::Emit(OpId op, std::vector<ValueId> operands, NamedAttrs attrs) { return EmitAll(op, std::move(operands), attrs)[0]; }

ValueId Call::Convert(ValueId v, DType dtype) {
  if (v == kNone || type(v).dtype == dtype) return v;
  return Emit(OpId::kToDtype, {v}, {{"out_dtype", dtype}});
}

ValueId Call::Expand(ValueId v, const Shape& shape) {
  if (v == kNone || this->shape(v) == shape) return v;
  return Emit(OpId::kExpand, {v}, {{"size", std::vector<Dim>(shape.begin(), shape.end())}});
}

ValueId Call::Reshape(ValueId v, std::vector<Dim> sizes) {
  if (v == kNone || Shape(std::span<const Dim>(sizes).first(std::min(sizes.size(), kMaxRank))) == shape(v)) return v;
  return Emit(OpId::kView, {v}, {{"size", std::move(sizes)}});
}

ValueId Call::ScalarTensor(const Attr& value, DType dtype) {
  if (!ok()) return kNone;
  const Dim* d = value.get<Dim>();
  if (d && !d->is_constant()) {
    const std::string item = ItemSymbol(*d);
    if (item.empty()) return CheckDim(*d) ? Emit(OpId::kFull, {}, {{"size", std::vector<Dim>()}, {"fill_value", *d}, {"out_dtype", dtype}}) : kNone;
    const Dim rest = *d - Dim::Symbol(item);
    const ValueId element = Convert(context_.items.at(item), dtype);
    if (rest == Dim(0)) return element;
    if (!CheckDim(rest)) return kNone;
    return Emit(OpId::kAdd, {element, ScalarTensor(rest, dtype)});
  }
  // Equal constants are one, so that later passes see it.
  std::string key = StrCat(Name(dtype), ":", value.ToString());
  if (auto it = context_.splats.find(key); it != context_.splats.end()) return it->second;
  // Through a constant of the scalar's own type, so that an integer keeps all its bits.
  const DType from = d ? DType::kI64 : DType::kF64;
  std::vector<std::byte> wide(8), data(ByteSize(dtype));
  const int64_t integer = d ? d->value() : 0;
  const double number = value.is<bool>() ? value.Bool() : value.Number();
  std::memcpy(wide.data(), d ? static_cast<const void*>(&integer) : &number, 8);
  if (d && dtype == DType::kI64) {
    data = wide;
  } else {
    Constant c = MakeOwnedConstant("", TensorType(from, {}), std::move(wide));
    c.type.dtype = dtype;
    c.CopyTo(data.data());
  }
  const ValueId v = context_.builder.AddConst(StrCat("scalar.", value.ToString(), ".", Name(dtype)), TensorType(dtype, {}), std::move(data));
  context_.splats.emplace(std::move(key), v);
  return v;
}

ValueId Call::Number(std::string_view name, DType dtype) {
  if (IsTensor(name)) return Convert(Tensor(name), dtype);
  const Arg* arg = Require(name);
  if (!arg) return kNone;
  if (arg->type != ArgType::kSymOther) return ScalarTensor(Scalar(name), dtype);
  if (auto it = context_.numbers.find(arg->text); it != context_.numbers.end()) return Convert(it->second, dtype);
  Fail(Unsupported("the symbolic number '", arg->text, "', which is no element of a tensor"));
  return kNone;
}

ValueId Call::Binary(OpId op, ValueId a, ValueId b, DType dtype) {
  if (dtype == DType::kNone) dtype = PromoteOperands(type(a), type(b));
  return Emit(op, {Convert(a, dtype), Convert(b, dtype)});
}

const Constant* Call::GetConstant(ValueId v) const { return v == kNone ? nullptr : dovetail::GetConstant(context_.module, context_.graph, v); }

// Views.

TensorId Call::View(TensorId t, OpId op, NamedAttrs attrs) {
  if (t == kNone || !ok()) return kNone;
  auto filled = FillAttrs(op, attrs);
  if (!filled.ok()) {
    Fail(std::move(filled).status());
    return kNone;
  }
  auto v = context_.aliases.AddView(t, {op, std::move(*filled), kNone});
  if (v.ok()) return *v;
  Fail(std::move(v).status());
  return kNone;
}

TensorId Call::ViewSizes(TensorId t, std::vector<Dim> sizes) {
  // -1 stands for what the export found; only an export without types leaves it to inference.
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == Dim(-1))
      if (const auto meta = RecordedOutput(); meta && meta->sizes.size() == sizes.size() && CheckDim(meta->sizes[i])) sizes[i] = meta->sizes[i];
  if (is_complex(t)) sizes.push_back(2);
  return View(t, OpId::kView, {{"size", std::move(sizes)}});
}

TensorId Call::ViewPermuted(TensorId t, std::vector<Dim> dims) {
  for (Dim& d : dims)
    if (d.is_constant() && d.value() < 0) d = d + Dim(static_cast<int64_t>(dims.size()));
  if (is_complex(t)) dims.push_back(static_cast<int64_t>(dims.size()));
  return View(t, OpId::kPermute, {{"dims", std::move(dims)}});
}

TensorId Call::ViewSlice(TensorId t, size_t dim, Dim start, Dim length, int64_t step) {
  const int64_t axis = static_cast<int64_t>(dim);
  const std::string item = ItemSymbol(start);
  if (item.empty()) {
    const Dim end = length == Dim(0) ? start : start + (length - Dim(1)) * Dim(step) + Dim(1);
    return View(t, OpId::kSlice, {{"dim", axis}, {"start", start}, {"end", end}, {"step", step}});
  }
  // start = item + rest: the elements at item + (rest, rest + step, ...).
  const Dim rest = start - Dim::Symbol(item);
  if (!CheckDim(rest) || !CheckDim(length)) return kNone;
  const ValueId offsets = Emit(OpId::kArange, {}, {{"start", rest}, {"end", rest + length * Dim(step)}, {"step", step}, {"out_dtype", DType::kI64}});
  const ValueId index = Emit(OpId::kAdd, {offsets, context_.items.at(item)});
  if (!ok()) return kNone;
  auto v = context_.aliases.AddView(t, {OpId::kIndexSelect, {Attr(axis)}, index});
  if (v.ok()) return *v;
  Fail(std::move(v).status());
  return kNone;
}

TensorId Call::AsComplex(TensorId t, bool is_complex) { return t == kNone || !ok() ? kNone : context_.aliases.AsComplex(t, is_complex); }

// Results.

void Call::Return(ValueId v, bool is_complex) { results_.push_back(v == kNone || !ok() ? kNone : context_.aliases.AddTemporary(v, is_complex)); }
void Call::Return(const std::vector<ValueId>& values) {
  for (ValueId v : values) Return(v);
}
void Call::ReturnView(TensorId t) {
  results_.push_back(ok() ? t : kNone);
  returned_view_ = true;
}

void Call::Write(TensorId t, ValueId value) {
  if (t == kNone || !ok()) return;
  const TensorType& self = context_.aliases.type(t);
  const ValueId v = Expand(Convert(value, self.dtype), self.shape);
  if (ok()) Fail(context_.aliases.Write(t, v));
}

void Call::WriteResultTo(std::string_view name) {
  const TensorId self = Handle(name);
  if (!ok() || results_.empty() || results_[0] == self) return;
  if (returned_view_) return Fail(Unsupported("an operator that changes a tensor's shape in place"));
  if (is_complex(results_[0]) != is_complex(self)) return Fail(Unsupported("complex numbers written to a real tensor"));
  Write(self, Read(results_[0]));
  results_ = {self};
}

std::optional<TensorMeta> Call::RecordedOutput() const {
  if (node_.outputs.size() != 1 || node_.outputs[0].type != ArgType::kTensor) return std::nullopt;
  auto meta = context_.program.Tensor(node_.outputs[0].text);
  return meta.ok() ? std::optional(std::move(*meta)) : std::nullopt;
}

std::optional<TensorMeta> Call::RecordedArg(std::string_view name) const {
  const Arg* arg = Find(name);
  if (!arg || arg->type != ArgType::kTensor) return std::nullopt;
  auto meta = context_.program.TensorWithStrides(arg->text);
  return meta.ok() ? std::optional(std::move(*meta)) : std::nullopt;
}

}  // namespace dovetail::pt2
