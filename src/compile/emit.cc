#include "compile/emit.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "compile/dim_program.h"
#include "compile/lower_states.h"
#include "compile/memory_plan.h"
#include "format/meta.h"

namespace dovetail {
namespace {

constexpr uint32_t kActivationMemory = 1, kStateMemory = 2;
constexpr uint64_t kTensorAlignment = 64;
constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 40;

Payload PayloadOf(const Constant& c) {
  if (c.contiguous()) return Payload::Borrowed(c.bytes());
  return {c.nbytes(), [&c](ByteSink& sink) {
            std::vector<std::byte> bytes(c.nbytes());
            c.CopyTo(bytes.data());
            return sink.Write(bytes.data(), bytes.size());
          }};
}

// Whether what is stored for it is alike for every constant of the same identity.
bool StoredAsItIs(const Constant& c) { return c.recipe || c.contiguous(); }

bool AllZero(const Constant& c) {
  if (!c.data_known) return true;
  std::vector<std::byte> bytes(c.nbytes());
  c.CopyTo(bytes.data());
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// What the methods of a program share.
struct Shared {
  const Module& module;
  const EmitOptions& options;
  pte::ProgramDesc program;
  std::map<uint32_t, uint32_t> constant_index;              // Module constant -> 1-based index into program.constants
  std::map<const void*, std::string> key_of_storage;   // of shared data already stored
  std::map<std::string, uint32_t> blob_of_key;         // of payloads that regions share
  std::map<std::string, size_t> named;                      // key -> index into named_data
  std::map<std::string, const Constant*> constant_of_key;   // null: made by a lowering
  std::vector<pte::AllocationDesc> state_place;             // by state
  std::vector<uint32_t> state_initial;                      // by state: data_buffer_idx
  uint64_t state_bytes = 0;
  Status missing;                                           // operators the runtime lacks
  MetaProgram meta;
};

class MethodEmitter {
 public:
  MethodEmitter(Shared& shared, const Graph& graph)
      : shared_(shared), module_(shared.module), graph_(graph),
        dims_({[this](int64_t v) { return Int(v); }, [this](std::string_view s) { return Symbol(s); },
               [this](std::string_view op, int32_t a, int32_t b) { return Binary(op, a, b); }}) {}

  Result<pte::MethodDesc> Run(EmitStats& stats) {
    method_.name = graph_.name;
    arguments_.insert(graph_.inputs.begin(), graph_.inputs.end());
    arguments_.insert(graph_.outputs.begin(), graph_.outputs.end());
    for (ValueId v : graph_.inputs) {
      DT_ASSIGN_OR_RETURN(const int32_t index, Tensor(v));
      method_.inputs.push_back(index);
    }
    for (NodeId id : graph_.order) {
      const Node& n = graph_.node(id);
      if (Status s = EmitNode(n); !s.ok()) return std::move(s).At(DescribeNode(graph_, n), DescribeSource(module_, n));
      sources_.resize(method_.instructions.size(), SourceOf(n));
    }
    for (ValueId v : graph_.outputs) {
      DT_ASSIGN_OR_RETURN(const int32_t index, Tensor(v));
      method_.outputs.push_back(index);
    }
    Place(stats);
    Describe();
    return std::move(method_);
  }

 private:
  // A region's is that of its first node with one.
  std::string SourceOf(const Node& n) const {
    if (n.op != OpId::kDelegate) return DescribeSource(module_, n);
    for (NodeId id : n.region->body->order)
      if (std::string s = DescribeSource(module_, n.region->body->node(id)); !s.empty()) return s;
    return {};
  }
  void Describe() {
    MetaMethod m{graph_.name, {}, {}, std::move(sources_)};
    for (ValueId v : graph_.inputs) m.inputs.push_back({graph_.value(v).name, graph_.type(v).shape});
    for (size_t i = 0; i < graph_.outputs.size(); ++i)
      m.outputs.push_back({i < graph_.output_names.size() ? graph_.output_names[i] : StrCat("output_", i), graph_.type(graph_.outputs[i]).shape});
    shared_.meta.methods.push_back(std::move(m));
  }

  int32_t Add(pte::ValueDesc v) {
    method_.values.push_back(std::move(v));
    return static_cast<int32_t>(method_.values.size() - 1);
  }
  int32_t Keyed(const std::string& key, pte::ValueDesc v) {
    auto it = scalars_.find(key);
    if (it != scalars_.end()) return it->second;
    return scalars_[key] = Add(std::move(v));
  }
  int32_t None() { return Keyed("none", pte::NoneDesc{}); }
  int32_t Int(int64_t v) { return Keyed(StrCat("i", v), v); }

  int32_t Operator(const std::string& name) {
    if (auto it = operators_.find(name); it != operators_.end()) return it->second;
    if (shared_.options.stock && !IsStockOperator(name)) shared_.missing.Also(Unsupported("operator ", name, " is not in the stock ExecuTorch runtime"));
    const size_t dot = name.find('.');
    method_.operators.push_back({name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    return operators_[name] = static_cast<int32_t>(method_.operators.size() - 1);
  }
  void Call(const std::string& op, std::vector<int32_t> args) { method_.instructions.push_back(pte::KernelCallDesc{Operator(op), std::move(args)}); }

  // The size of the input dim that is this symbol (or affine in it).
  Result<int32_t> Symbol(std::string_view symbol) {
    for (const bool exact : {true, false}) {
      for (ValueId v : graph_.inputs) {
        for (size_t d = 0; d < graph_.type(v).rank(); ++d) {
          const Dim dim = graph_.type(v).shape[d];
          if (exact ? dim.symbol() != symbol : dim.symbols() != std::vector<std::string>{std::string(symbol)}) continue;
          const std::optional<AffineDim> affine = AsAffine(dim);
          if (!affine) continue;
          DT_ASSIGN_OR_RETURN(const int32_t tensor, Tensor(v));
          int32_t size = Add(int64_t{0});
          Call("aten::sym_size.int", {tensor, Int(static_cast<int64_t>(d)), size});
          if (affine->b != 0) size = Binary("sub", size, Int(affine->b));
          if (affine->a != 1) size = Binary("floordiv", size, Int(affine->a));
          return size;
        }
      }
    }
    return Unsupported("size ", symbol, " is not the size of any input, so the program cannot know it: a data-dependent shape that can't be bounded");
  }
  int32_t Binary(std::string_view op, int32_t a, int32_t b) {
    const int32_t out = Add(int64_t{0});
    Call(StrCat("executorch_prim::", op, ".Scalar"), {a, b, out});
    return out;
  }

  Result<int32_t> Attribute(const SchemaArg& arg, const Attr& a, const Node& n) {
    if (a.is_none() || arg.kind == ArgKind::kIgnored) return None();
    if (const bool* v = a.get<bool>()) return Keyed(*v ? "true" : "false", *v);
    if (const double* v = a.get<double>()) return Keyed("d" + FormatDouble(*v), *v);
    if (const std::string* v = a.get<std::string>()) return Keyed("s" + *v, *v);
    if (const Dim* v = a.get<Dim>()) {
      if (arg.kind == ArgKind::kFloat) return Keyed("d" + FormatDouble(a.Number()), a.Number());
      return dims_.Emit(*v);
    }
    if (a.is<DType>()) return Unsupported("a dtype argument cannot be written to a .pte");
    if (const auto* v = a.get<std::vector<double>>()) return Add(pte::DoubleListDesc{*v});
    if (const auto* v = a.get<std::vector<bool>>()) return Add(pte::BoolListDesc{*v});
    const std::vector<Dim>& list = a.Dims();
    // One free size of a view is left to the kernel.
    const bool infer_one = n.op == OpId::kView && std::count_if(list.begin(), list.end(), [](Dim d) { return !d.is_constant(); }) == 1;
    std::string key = "l";
    pte::IntListDesc items;
    for (Dim d : list) {
      DT_ASSIGN_OR_RETURN(const int32_t index, infer_one && !d.is_constant() ? Result<int32_t>(Int(-1)) : dims_.Emit(d));
      items.values.push_back(index);
      key += StrCat(index, ",");
    }
    return Keyed(key, std::move(items));
  }

  // Upper bounds of the sizes.
  Result<pte::TensorDesc> Describe(const TensorType& type, const std::string& name) {
    pte::TensorDesc t;
    t.dtype = type.dtype;
    unsigned __int128 bytes = ByteSize(type.dtype);
    for (Dim d : type.shape.dims()) {
      const DimRange range = d.Bounds(module_.symbols);
      if (range.max == DimRange::kUnbounded || range.max > INT32_MAX)
        return Unsupported("size ", d.ToString(), " of '", name, "' has no upper bound; give its Dim a max when exporting");
      t.sizes.push_back(static_cast<int32_t>(std::max<int64_t>(range.max, 0)));
      t.dynamic_bound |= !d.is_constant();
      bytes *= static_cast<uint64_t>(t.sizes.back());
      if (bytes > kMaxTensorBytes) return Unsupported("'", name, "' of type ", type.ToString(), " is too large");
    }
    return t;
  }

  static uint64_t Bytes(const pte::TensorDesc& t) {
    uint64_t n = ByteSize(t.dtype);
    for (int32_t s : t.sizes) n *= static_cast<uint64_t>(s);
    return n;
  }

  Result<int32_t> Tensor(ValueId v) {
    if (v == kNone) return None();
    if (auto it = tensors_.find(v); it != tensors_.end()) {
      Touch(it->second);
      return it->second;
    }
    uint32_t state;
    if (IsStateMemory(graph_, v, &state)) return tensors_[v] = StateTensor(state);
    const Node* producer = graph_.producer(v);
    DT_ASSIGN_OR_RETURN(pte::TensorDesc t, Describe(graph_.type(v), graph_.value(v).name));
    if (producer && producer->op == OpId::kConst) {
      const Constant& c = module_.constants[producer->ref];
      if (!c.data_known) return InvalidArgument("constant '", c.name, "' has no data");
      auto [it, inserted] = shared_.constant_index.try_emplace(producer->ref, 0);
      if (inserted) {
        shared_.program.constants.push_back(PayloadOf(c));
        it->second = static_cast<uint32_t>(shared_.program.constants.size());
      }
      t.data_buffer_idx = it->second;
      t.fully_qualified_name = c.name;
      return tensors_[v] = Add(std::move(t));
    }
    Lifetime life;
    life.size = Bytes(t);
    life.first = life.last = method_.instructions.size();
    const int32_t index = Add(std::move(t));
    planned_.emplace_back(index, life);
    planned_index_[index] = planned_.size() - 1;
    return tensors_[v] = index;
  }
  void Touch(int32_t index) {
    if (auto it = planned_index_.find(index); it != planned_index_.end()) planned_[it->second].second.last = method_.instructions.size();
  }

  int32_t StateTensor(uint32_t s) {
    if (auto it = states_.find(s); it != states_.end()) return it->second;
    const State& state = module_.states[s];
    pte::TensorDesc t;
    t.dtype = state.type.dtype;
    for (Dim d : state.type.shape.dims()) t.sizes.push_back(static_cast<int32_t>(d.value()));
    t.data_buffer_idx = shared_.state_initial[s];
    t.allocation = shared_.state_place[s];
    t.fully_qualified_name = state.name;
    return states_[s] = Add(std::move(t));
  }

  Status EmitNode(const Node& n) {
    switch (n.op) {
      case OpId::kConst:
      case OpId::kStateRead: return OkStatus();
      case OpId::kStateWrite: {
        uint32_t state;
        if (IsStateMemory(graph_, n.operands[0], &state) && state == n.ref) return OkStatus();
        DT_ASSIGN_OR_RETURN(const int32_t source, Tensor(n.operands[0]));
        const int32_t to = StateTensor(n.ref);
        Call("aten::copy_", {to, source, Keyed("false", false), to});
        return OkStatus();
      }
      case OpId::kDelegate: return EmitDelegate(n);
      default: return EmitKernel(n);
    }
  }

  Status EmitDelegate(const Node& n) {
    const Backend* backend = nullptr;
    for (const Backend* b : shared_.options.backends)
      if (b->name == n.region->backend) backend = b;
    if (!backend) return Internal("no backend '", n.region->backend, "'");
    DT_ASSIGN_OR_RETURN(LoweredRegion lowered, backend->lower(module_, *n.region));
    pte::DelegateDesc d;
    d.id = lowered.delegate_id;
    const auto known_payload = shared_.blob_of_key.find(lowered.payload_key);
    if (!lowered.payload_key.empty() && known_payload != shared_.blob_of_key.end()) {
      d.blob_index = known_payload->second;
    } else {
      d.blob_index = static_cast<uint32_t>(shared_.program.delegate_blobs.size());
      shared_.blob_of_key[lowered.payload_key] = d.blob_index;
      shared_.program.delegate_blobs.push_back(Payload::Owned(std::move(lowered.payload)));
    }
    for (const auto& [key, bytes] : lowered.compile_specs) {
      const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
      d.compile_specs.push_back({key, {first, first + bytes.size()}});
    }
    method_.delegates.push_back(std::move(d));
    for (SharedData& data : lowered.shared) {
      if (auto known = shared_.named.find(data.key); known != shared_.named.end()) {
        if (data.constant && shared_.constant_of_key[data.key] != data.constant) return Internal("two weights are stored under '", data.key, "'");
        continue;
      }
      shared_.constant_of_key[data.key] = data.constant;
      shared_.named[data.key] = shared_.program.named_data.size();
      pte::NamedDataDesc named;
      named.keys = {data.key};
      named.alignment = 64;
      named.payload = data.constant ? PayloadOf(*data.constant) : Payload::Owned(std::move(data.bytes));
      if (data.constant && StoredAsItIs(*data.constant)) shared_.key_of_storage.emplace(data.constant->identity(), data.key);
      shared_.program.named_data.push_back(std::move(named));
    }
    pte::DelegateCallDesc call;
    call.delegate_index = static_cast<int32_t>(method_.delegates.size() - 1);
    for (ValueId v : n.operands) {
      DT_ASSIGN_OR_RETURN(const int32_t index, Tensor(v));
      call.args.push_back(index);
    }
    for (ValueId v : n.results) {
      DT_ASSIGN_OR_RETURN(const int32_t index, Tensor(v));
      call.args.push_back(index);
    }
    method_.instructions.push_back(std::move(call));
    return OkStatus();
  }

  // A view of planned memory is that memory, which lives as long as its views. Arguments of the method have memory of their own, so views
  // from and to them are copies, and so are views of states, which may change after. Whether it was emitted.
  Result<bool> EmitView(const Node& n) {
    if (n.op != OpId::kView || shared_.options.stock) return false;
    const ValueId from = n.operands[0], to = n.results[0];
    if (arguments_.contains(from) || arguments_.contains(to)) return false;
    DT_ASSIGN_OR_RETURN(const int32_t base, Tensor(from));
    const auto planned = planned_index_.find(base);
    if (planned == planned_index_.end()) return false;
    const size_t slot = planned->second;
    DT_ASSIGN_OR_RETURN(pte::TensorDesc t, Describe(graph_.type(to), graph_.value(to).name));
    // Bounds are of each dim by itself, so that the views' product may be another.
    if (Bytes(t) != planned_[slot].second.size) return false;
    DT_ASSIGN_OR_RETURN(const int32_t sizes, Attribute(GetSchema(n.op).args[1], n.attrs[0], n));
    const int32_t index = Add(std::move(t));
    planned_index_[index] = slot;
    views_.emplace_back(index, slot);
    tensors_[to] = index;
    Touch(index);
    Call("executorch_prim::et_view.default", {base, sizes, index});
    return true;
  }

  Status EmitKernel(const Node& n) {
    DT_ASSIGN_OR_RETURN(const bool viewed, EmitView(n));
    if (viewed) return OkStatus();
    const OpDef& op = GetOp(n.op);
    const Schema& schema = GetSchema(n.op);
    if (op.out_variant.empty()) return Internal("operator ", op.name, " has no form in a .pte");
    std::vector<int32_t> args;
    for (size_t p = 0; p < schema.args.size(); ++p) {
      const SchemaArg& arg = schema.args[p];
      if (arg.name == "out_dtype") continue;
      if (!IsTensorKind(arg.kind)) {
        DT_ASSIGN_OR_RETURN(const int32_t index, Attribute(arg, n.attrs[static_cast<size_t>(arg.index)], n));
        args.push_back(index);
        continue;
      }
      const auto range = schema.OperandsOf(p, n.operands.size());
      std::vector<int32_t> items;
      for (size_t i = range.first; i < range.first + range.count; ++i) {
        DT_ASSIGN_OR_RETURN(const int32_t index,
                            n.operands[i] == kNone && arg.kind == ArgKind::kOptionalTensorList ? Result<int32_t>(-1) : Tensor(n.operands[i]));
        items.push_back(index);
      }
      if (arg.kind == ArgKind::kTensorList) args.push_back(Add(pte::TensorListDesc{items}));
      else if (arg.kind == ArgKind::kOptionalTensorList) args.push_back(Add(pte::OptionalTensorListDesc{items}));
      else args.push_back(items[0]);
    }
    // Sizes computed for attributes stand between: the operands live until the call.
    for (ValueId v : n.operands)
      if (v != kNone) DT_RETURN_IF_ERROR(Tensor(v).status().Clone());
    if (n.op == OpId::kIndexPutInplace) {
      args.push_back(args[0]);  // what an operator in place returns is its first argument
    } else {
      int32_t first = -1;
      for (ValueId v : n.results) {
        DT_ASSIGN_OR_RETURN(const int32_t index, Tensor(v));
        if (first < 0) first = index;
        args.push_back(index);
      }
      args.push_back(first);
    }
    Call(std::string(op.out_variant), std::move(args));
    return OkStatus();
  }

  void Place(EmitStats& stats) {
    std::vector<Lifetime> lives;
    const size_t end = method_.instructions.size();
    const std::unordered_set<int32_t> inputs(method_.inputs.begin(), method_.inputs.end()), outputs(method_.outputs.begin(), method_.outputs.end());
    for (auto& [index, life] : planned_) {
      if (inputs.contains(index)) life.first = 0;
      if (outputs.contains(index)) life.last = end;
      lives.push_back(life);
    }
    const MemoryPlan plan = PlanMemory(lives, kTensorAlignment);
    const auto place = [&](int32_t index, size_t slot) {
      std::get<pte::TensorDesc>(method_.values[static_cast<size_t>(index)]).allocation = pte::AllocationDesc{kActivationMemory, lives[slot].offset};
    };
    for (size_t i = 0; i < lives.size(); ++i) place(planned_[i].first, i);
    for (const auto& [index, slot] : views_) place(index, slot);
    method_.non_const_buffer_sizes = {0, static_cast<int64_t>(std::max<uint64_t>(plan.peak, kTensorAlignment))};
    if (shared_.state_bytes) method_.non_const_buffer_sizes.push_back(static_cast<int64_t>(shared_.state_bytes));
    stats.planned_bytes = std::max(stats.planned_bytes, plan.peak);
    stats.planned_lower_bound = std::max(stats.planned_lower_bound, plan.lower_bound);
  }

  Shared& shared_;
  const Module& module_;
  const Graph& graph_;
  pte::MethodDesc method_;
  DimProgram dims_;
  std::unordered_set<ValueId> arguments_;  // inputs and outputs
  std::vector<std::string> sources_;  // by instruction
  std::map<std::string, int32_t> scalars_, operators_;
  std::unordered_map<ValueId, int32_t> tensors_;
  std::unordered_map<uint32_t, int32_t> states_;
  std::vector<std::pair<int32_t, Lifetime>> planned_;
  std::unordered_map<int32_t, size_t> planned_index_;       // of a tensor or a view of it
  std::vector<std::pair<int32_t, size_t>> views_;           // with what they view among planned_
};

// A weight that a kernel reads and a delegate has under a key (a tied embedding) is stored once: it becomes the first constant, which
// named data can point at. There is room for one; the largest takes it.
void ShareFirstConstant(Shared& shared) {
  uint32_t best = 0;
  uint64_t best_bytes = 0;
  std::string key;
  for (const auto& [constant, index] : shared.constant_index) {
    const Constant& c = shared.module.constants[constant];
    if (!StoredAsItIs(c)) continue;
    auto it = shared.key_of_storage.find(c.identity());
    if (it == shared.key_of_storage.end() || c.nbytes() <= best_bytes) continue;
    if (shared.program.named_data[shared.named[it->second]].payload.size != c.nbytes()) continue;
    best = index;
    best_bytes = c.nbytes();
    key = it->second;
  }
  if (!best) return;
  std::swap(shared.program.constants[0], shared.program.constants[best - 1]);
  for (pte::MethodDesc& m : shared.program.methods) {
    for (pte::ValueDesc& v : m.values) {
      auto* t = std::get_if<pte::TensorDesc>(&v);
      if (!t || t->allocation) continue;
      if (t->data_buffer_idx == best) t->data_buffer_idx = 1;
      else if (t->data_buffer_idx == 1) t->data_buffer_idx = best;
    }
  }
  pte::NamedDataDesc& named = shared.program.named_data[shared.named[key]];
  named.payload = {};
  named.first_constant = true;
}

}  // namespace

bool IsStockOperator(std::string_view name) {
  static const std::unordered_set<std::string_view> names = {
#include "compile/stock_operators.inc"
  };
  return names.contains(name);
}

Result<pte::ProgramDesc> Emit(const Module& module, const EmitOptions& options, EmitStats& stats) {
  Shared shared{module, options, {}, {}, {}, {}, {}, {}, {}, {}, 0, {}, {}};
  shared.meta.symbols = module.symbols;
  shared.meta.quantization = options.quantization;
  shared.program.inline_delegate_blobs = options.stock;
  shared.program.hashes = true;
  for (const State& s : module.states) {
    pte::AllocationDesc place;
    place.memory_id = kStateMemory;
    place.offset = shared.state_bytes;
    shared.state_place.push_back(place);
    shared.state_bytes += (s.initial.nbytes() + kTensorAlignment) / kTensorAlignment * kTensorAlignment;
    // Our runtime starts memory at zero; the stock one promises nothing.
    uint32_t initial = 0;
    if (options.stock || !AllZero(s.initial)) {
      shared.program.mutable_initial.push_back(s.initial.data_known ? PayloadOf(s.initial) : Payload::Owned(std::vector<std::byte>(s.initial.nbytes())));
      initial = static_cast<uint32_t>(shared.program.mutable_initial.size());
    }
    shared.state_initial.push_back(initial);
    stats.state_bytes += s.initial.nbytes();
  }
  for (const Backend* b : options.backends)
    if (b->begin) DT_RETURN_IF_ERROR(b->begin(module));
  for (const auto& g : module.graphs) {
    DT_ASSIGN_OR_RETURN(pte::MethodDesc method, MethodEmitter(shared, *g).Run(stats));
    shared.program.methods.push_back(std::move(method));
  }
  if (!shared.missing.ok()) return std::move(shared.missing).While("emitting for --runtime executorch; --runtime dovetail has them");
  ShareFirstConstant(shared);
  pte::NamedDataDesc meta;
  meta.keys = {std::string(kMetaKey)};
  meta.payload = Payload::Owned(SerializeMeta(shared.meta));
  meta.alignment = 16;
  shared.program.named_data.push_back(std::move(meta));
  return std::move(shared.program);
}

}  // namespace dovetail
