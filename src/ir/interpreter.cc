#include "ir/interpreter.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "ir/builder.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

constexpr size_t kReadablePastEnd = 16;
using Bindings = std::map<std::string, int64_t, std::less<>>;

Result<Dim> Resolve(Dim d, const Bindings& bindings) {
  const auto v = d.Evaluate([&](std::string_view s) -> std::optional<int64_t> {
    auto it = bindings.find(s);
    return it == bindings.end() ? std::nullopt : std::optional(it->second);
  });
  if (!v) return InvalidArgument("dimension ", d.ToString(), " has no value");
  return Dim(*v);
}

Result<TensorType> Resolve(const TensorType& t, const Bindings& bindings) {
  TensorType r = t;
  for (size_t i = 0; i < t.rank(); ++i) {
    DT_ASSIGN_OR_RETURN(r.shape[i], Resolve(t.shape[i], bindings));
  }
  return r;
}

Result<Attr> Resolve(const Attr& a, const Bindings& bindings) {
  if (const Dim* d = a.get<Dim>()) {
    DT_ASSIGN_OR_RETURN(Dim r, Resolve(*d, bindings));
    return Attr(r);
  }
  if (a.is<std::vector<Dim>>()) {
    std::vector<Dim> v = a.Dims();
    for (Dim& d : v) {
      DT_ASSIGN_OR_RETURN(d, Resolve(d, bindings));
    }
    return Attr(std::move(v));
  }
  return a;
}

class Run {
 public:
  Run(const Module& module, const Bindings& bindings, StateStore* states, const InterpretOptions& options)
      : module_(module), bindings_(bindings), states_(states), options_(options) {}

  Result<std::vector<OwnedTensor>> Execute(const Graph& graph, std::vector<OwnedTensor> inputs) {
    std::vector<OwnedTensor> values(graph.num_values());
    std::vector<uint32_t> uses = graph.CountUses();
    for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = std::move(inputs[i]);
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if (Status s = Step(graph, n, values); !s.ok()) return std::move(s).At(DescribeNode(graph, n), DescribeSource(module_, n));
      if (options_.observer)
        for (ValueId v : n.results) options_.observer(graph, v, values[v]);
      for (ValueId v : n.operands)
        if (v != kNone && --uses[v] == 0) values[v] = {};
    }
    std::vector<OwnedTensor> outputs;
    for (ValueId v : graph.outputs) outputs.push_back(values[v]);
    return outputs;
  }

 private:
  Status Step(const Graph& graph, const Node& n, std::vector<OwnedTensor>& values) {
    switch (n.op) {
      case OpId::kConst: {
        const Constant& c = module_.constants[n.ref];
        if (!c.data_known) return InvalidArgument("constant '", c.name, "' has no data in this text form");
        values[n.results[0]] = OwnedTensor::Make(c.type);
        c.CopyTo(values[n.results[0]].storage.data());
        return OkStatus();
      }
      case OpId::kStateRead: values[n.results[0]] = (*states_)[n.ref]; return OkStatus();
      case OpId::kStateWrite: (*states_)[n.ref] = values[n.operands[0]]; return OkStatus();
      case OpId::kDelegate: {
        std::vector<OwnedTensor> inputs;
        for (ValueId v : n.operands) inputs.push_back(values[v]);
        DT_ASSIGN_OR_RETURN(std::vector<OwnedTensor> outputs, Execute(*n.region->body, std::move(inputs)));
        for (size_t i = 0; i < outputs.size(); ++i) values[n.results[i]] = std::move(outputs[i]);
        return OkStatus();
      }
      default: return Compute(graph, n, values);
    }
  }

  Status Compute(const Graph& graph, const Node& n, std::vector<OwnedTensor>& values) {
    std::vector<TensorType> types, results(n.results.size());
    std::vector<TensorView> inputs, outputs;
    std::vector<Attr> attrs;
    const bool integers = ComputesOnIntegers(n.op);
    std::vector<OwnedTensor> real;  // of quantized operands
    real.reserve(n.operands.size());
    for (ValueId v : n.operands) {
      const OwnedTensor* t = v == kNone ? nullptr : &values[v];
      if (t && t->type.per_tensor() && !integers) t = &real.emplace_back(Dequantize(*t));
      types.push_back(t ? t->type : TensorType());
      inputs.push_back(t ? t->view() : TensorView());
    }
    for (const Attr& a : n.attrs) {
      DT_ASSIGN_OR_RETURN(Attr r, Resolve(a, bindings_));
      attrs.push_back(std::move(r));
    }
    DT_RETURN_IF_ERROR(GetOp(n.op).infer({types, attrs, results, inputs}));
    for (size_t i = 0; i < results.size(); ++i) {
      DT_ASSIGN_OR_RETURN(TensorType expected, Resolve(graph.type(n.results[i]), bindings_));
      if ((integers ? expected : Dequantized(expected)) != results[i]) return Internal("result ", i, " has type ", results[i].ToString(), " where ", expected.ToString(), " was inferred");
      values[n.results[i]] = OwnedTensor::Make(results[i]);
      outputs.push_back(values[n.results[i]].view());
    }
    for (const SchemaArg& arg : GetSchema(n.op).args)
      if (arg.written && !outputs.empty()) std::memcpy(outputs[0].data, inputs[static_cast<size_t>(arg.index)].data, outputs[0].nbytes());
    DT_RETURN_IF_ERROR(RunKernel(n.op, {inputs, attrs, outputs, options_.pool, {}}));
    for (ValueId v : n.results)
      if (graph.type(v).per_tensor() && !integers) {
        DT_ASSIGN_OR_RETURN(const TensorType type, Resolve(graph.type(v), bindings_));
        values[v] = Quantize(values[v], type);
      }
    return OkStatus();
  }

  Status RunKernel(OpId op, KernelContext context) {
    constexpr size_t kAlignment = 64;
    if (ScratchFn size = options_.scratch ? options_.scratch(op) : nullptr) {
      const size_t bytes = size(context);
      scratch_.resize(std::max(scratch_.size(), bytes + kAlignment));
      void* start = scratch_.data();
      size_t space = scratch_.size();
      context.scratch = {static_cast<std::byte*>(std::align(kAlignment, bytes, start, space)), bytes};
    }
    return (options_.kernel ? options_.kernel(op) : GetOp(op).reference)(context);
  }

  const Module& module_;
  const Bindings& bindings_;
  StateStore* states_;
  const InterpretOptions& options_;
  std::vector<std::byte> scratch_;
};

}  // namespace

OwnedTensor OwnedTensor::Make(TensorType type) {
  OwnedTensor t;
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(type.shape.numel().value(), 0)) * ByteSize(type.dtype);
  t.type = std::move(type);
  t.storage.resize(bytes + kReadablePastEnd);
  return t;
}

OwnedTensor OwnedTensor::CopyOf(const TensorView& v) {
  OwnedTensor t = Make(v.type());
  if (v.nbytes()) std::memcpy(t.storage.data(), v.data, v.nbytes());
  return t;
}

OwnedTensor Dequantize(const OwnedTensor& t) {
  OwnedTensor real = OwnedTensor::Make(Dequantized(t.type));
  const TensorView from = t.view(), to = real.view();
  for (int64_t i = 0; i < from.numel(); ++i)
    to.as<float>()[i] = DequantizeElement(static_cast<int32_t>(ReadElement<int64_t>(from.dtype, from.data, i)), t.type.quant.scale, t.type.quant.zero_point);
  return real;
}

OwnedTensor Quantize(const OwnedTensor& t, const TensorType& type) {
  OwnedTensor integers = OwnedTensor::Make(type);
  const TensorView from = t.view(), to = integers.view();
  for (int64_t i = 0; i < from.numel(); ++i)
    StoreQuantized(to, i, QuantizeElement(from.as<float>()[i], type.quant.scale, type.quant.zero_point, RangeOf(type.dtype)));
  return integers;
}

TensorView OwnedTensor::view() const {
  TensorView v;
  v.dtype = type.dtype;
  v.rank = static_cast<uint8_t>(type.rank());
  for (size_t i = 0; i < type.rank(); ++i) v.sizes[i] = type.shape[i].value();
  v.data = const_cast<std::byte*>(storage.data());
  return v;
}

Result<StateStore> InitStates(const Module& module) {
  StateStore store;
  for (const State& s : module.states) {
    if (!s.initial.data_known) return InvalidArgument("state '", s.name, "' has no data in this text form");
    store.push_back(OwnedTensor::Make(s.type));
    s.initial.CopyTo(store.back().storage.data());
  }
  return store;
}

Result<Bindings> BindSymbols(const Module& module, const Graph& graph, std::span<const OwnedTensor> inputs) {
  if (inputs.size() != graph.inputs.size()) return InvalidArgument("@", graph.name, " takes ", graph.inputs.size(), " inputs, not ", inputs.size());
  Bindings bindings;
  auto name = [&](size_t i) {
    const std::string& given = graph.value(graph.inputs[i]).name;
    return given.empty() ? std::to_string(i) : given;
  };
  // Inputs whose size is a symbol itself define it; the rest must then agree.
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& want = graph.type(graph.inputs[i]);
    const TensorType& got = inputs[i].type;
    if (got.dtype != want.dtype) return InvalidArgument("input '", name(i), "' has dtype ", Name(got.dtype), ", expected ", Name(want.dtype));
    if (got.rank() != want.rank())
      return InvalidArgument("input '", name(i), "' has rank ", got.rank(), ", expected ", want.rank(), " (", want.ToString(), ")");
    for (size_t d = 0; d < want.rank(); ++d) {
      const std::optional<AffineDim> affine = AsAffine(want.shape[d]);
      if (!affine || bindings.contains(affine->symbol)) continue;
      const int64_t scaled = got.shape[d].value() - affine->b;
      if (scaled % affine->a == 0) bindings[affine->symbol] = scaled / affine->a;
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& want = graph.type(graph.inputs[i]);
    for (size_t d = 0; d < want.rank(); ++d) {
      DT_ASSIGN_OR_RETURN(const Dim expected, Resolve(want.shape[d], bindings));
      const int64_t size = inputs[i].type.shape[d].value();
      if (expected.value() != size)
        return InvalidArgument("input '", name(i), "' has size ", size, " in dimension ", d, ", expected ", want.shape[d].ToString(),
                               want.shape[d].is_constant() ? "" : StrCat(" = ", expected.value()));
      for (const std::string& s : want.shape[d].symbols()) {
        auto range = module.symbols.find(s);
        const int64_t v = bindings[s];
        if (range != module.symbols.end() && (v < range->second.min || v > range->second.max))
          return OutOfRange("input '", name(i), "' has size ", size, " in dimension ", d, "; ", s, " must be in ", range->second.min, "..", range->second.max);
      }
    }
  }
  return bindings;
}

Result<std::vector<OwnedTensor>> Interpret(const Module& module, const Graph& graph, std::span<const OwnedTensor> inputs, StateStore& states,
                                           const InterpretOptions& options) {
  DT_ASSIGN_OR_RETURN(const Bindings bindings, BindSymbols(module, graph, inputs));
  return Run(module, bindings, &states, options).Execute(graph, std::vector<OwnedTensor>(inputs.begin(), inputs.end()));
}

}  // namespace dovetail
