#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/method_impl.h"
#include "runtime/thread_pool.h"

namespace dovetail {
namespace {

bool SameShape(const TensorView& a, const TensorView& b) {
  return a.rank == b.rank && std::equal(a.sizes.begin(), a.sizes.begin() + a.rank, b.sizes.begin());
}

// Sets the sizes of a tensor and finds memory for them if its bounds are not known.
Status Resize(MethodImpl* m, uint32_t index, std::span<const int64_t> sizes) {
  Tensor& t = m->table.tensors[index];
  size_t bytes = 0;
  auto text = [&] { return TensorType(t.view.dtype, Shape(sizes)).ToString(); };
  if (sizes.size() != t.view.rank) return Corrupt(DescribeValue(m->table, t.value), " has rank ", t.view.rank, ", but becomes ", text());
  if (!ByteCount(t.view.dtype, sizes, &bytes)) return OutOfRange("the size of ", text(), " overflows");
  if (bytes > t.capacity) {
    if (!t.growable || t.storage != Storage::kOwned)
      return OutOfRange(DescribeValue(m->table, t.value), " becomes ", text(), ", which is more than the program planned memory for");
    AlignedBuffer larger;
    if (bytes - t.capacity > m->instance->memory_left || !larger.Allocate(bytes)) return OutOfRange("no memory for ", text());
    m->instance->memory_left -= bytes - t.capacity;
    m->owned[index] = std::move(larger);
    t.capacity = bytes;
    t.view.data = m->owned[index].data();
    for (Tensor& v : m->table.tensors)
      if (v.storage == Storage::kView && v.root == index) v.view.data = t.view.data;
  }
  if (t.fixed && !std::equal(sizes.begin(), sizes.end(), t.bounds.begin()))
    return OutOfRange(DescribeValue(m->table, t.value), " has a fixed size, but becomes ", text());
  std::copy(sizes.begin(), sizes.end(), t.view.sizes.begin());
  return OkStatus();
}

void UpdateComputed(const MethodImpl& m, KernelStep* step) {
  for (const AttrSource& source : step->computed) {
    const Value& v = m.table.values[source.value];
    Attr& attr = step->attrs[source.attr];
    if (source.element >= 0) {
      Dim& item = (*attr.get<std::vector<Dim>>())[static_cast<size_t>(source.element)];
      if (item == Dim(v.AsInt())) continue;
      item = Dim(v.AsInt());
    } else {
      Attr now = attr.is<double>() ? Attr(v.AsDouble()) : v.AsAttr();
      if (now == attr) continue;
      attr = std::move(now);
    }
    step->inferred = false;
  }
}

KernelContext ContextOf(const MethodImpl& m, const KernelStep& step) {
  return {step.in_views, step.attrs, step.out_views, m.instance->threads->get(), {m.scratch.data(), m.scratch.size()}};
}

Status RunKernel(MethodImpl* m, KernelStep* step) {
  if (!step->computed.empty()) UpdateComputed(*m, step);
  for (size_t i = 0; i < step->operands.size(); ++i) {
    if (step->operands[i] < 0) continue;
    const TensorView& now = m->table.tensors[static_cast<size_t>(step->operands[i])].view;
    TensorView& seen = step->in_views[i];
    if (step->inferred && !SameShape(now, seen)) step->inferred = false;
    seen = now;
  }
  if (!step->inferred) DT_RETURN_IF_ERROR(InferStep(m, step));
  for (size_t r = 0; r < step->outputs.size(); ++r) {
    Tensor& t = m->table.tensors[step->outputs[r]];
    t.view.sizes = step->out_views[r].sizes;
    step->out_views[r].data = t.view.data;
  }
  if (!step->empty) {
    const KernelContext context = ContextOf(*m, *step);
    DT_RETURN_IF_ERROR(step->looks_up_table ? RunTableLookup(m, step, context) : step->op.run(context));
  }
  if (step->result_view >= 0) {
    Tensor& t = m->table.tensors[static_cast<size_t>(step->result_view)];
    const Tensor& of = m->table.tensors[step->outputs[0]];
    if (t.view.dtype != of.view.dtype || t.view.rank != of.view.rank) return Corrupt(DescribeValue(m->table, t.value), " is not of the type of what it is");
    t.view = of.view;
  }
  return OkStatus();
}

Status RunDelegate(MethodImpl* m, DelegateStep* step) {
  for (size_t i = 0; i < step->arguments.size(); ++i) {
    const Tensor& t = m->table.tensors[step->arguments[i]];
    step->views[i] = t.view;
    if (i >= step->num_inputs) step->views[i].sizes = t.bounds;
  }
  const std::span<TensorView> views(step->views);
  DT_RETURN_IF_ERROR(step->delegate->Execute(views.first(step->num_inputs), views.subspan(step->num_inputs)));
  for (size_t i = step->num_inputs; i < step->arguments.size(); ++i) DT_RETURN_IF_ERROR(Resize(m, step->arguments[i], step->views[i].shape()));
  return OkStatus();
}

Result<int64_t> FloorDivide(int64_t a, int64_t b) {
  if (b == 0) return OutOfRange("division by zero");
  if (a == INT64_MIN && b == -1) return OutOfRange("the quotient overflows");
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// Numbers: integers unless one is a float, as Python has it.
Status RunArithmetic(Prim prim, const Value& a, const Value& b, Value* out) {
  const bool floats = a.kind == ValueKind::kDouble || b.kind == ValueKind::kDouble;
  const double x = a.AsDouble(), y = b.AsDouble();
  const int64_t i = a.AsInt(), k = b.AsInt();
  int64_t r = 0;
  bool overflow = false;
  auto set = [&](double d, int64_t n) { floats ? out->Set(d) : out->Set(n); };
  switch (prim) {
    case Prim::kAdd: overflow = !floats && __builtin_add_overflow(i, k, &r); set(x + y, r); break;
    case Prim::kSub: overflow = !floats && __builtin_sub_overflow(i, k, &r); set(x - y, r); break;
    case Prim::kMul: overflow = !floats && __builtin_mul_overflow(i, k, &r); set(x * y, r); break;
    case Prim::kMax: set(std::max(x, y), std::max(i, k)); break;
    case Prim::kMin: set(std::min(x, y), std::min(i, k)); break;
    case Prim::kTrueDiv:
      if (y == 0) return OutOfRange("division by zero");
      out->Set(x / y);
      break;
    case Prim::kFloorDiv:
    case Prim::kMod: {
      if (floats) {
        if (y == 0) return OutOfRange("division by zero");
        out->Set(prim == Prim::kFloorDiv ? std::floor(x / y) : x - std::floor(x / y) * y);
        break;
      }
      DT_ASSIGN_OR_RETURN(const int64_t quotient, FloorDivide(i, k));
      out->Set(prim == Prim::kFloorDiv ? quotient : i - quotient * k);
      break;
    }
    case Prim::kEq: out->Set(floats ? x == y : i == k); break;
    case Prim::kNe: out->Set(floats ? x != y : i != k); break;
    case Prim::kLt: out->Set(floats ? x < y : i < k); break;
    case Prim::kLe: out->Set(floats ? x <= y : i <= k); break;
    case Prim::kGt: out->Set(floats ? x > y : i > k); break;
    default: out->Set(floats ? x >= y : i >= k); break;
  }
  return overflow ? OutOfRange("the result overflows") : OkStatus();
}

Status RunUnary(Prim prim, const Value& a, Value* out) {
  const double x = a.AsDouble();
  switch (prim) {
    case Prim::kNeg:
      if (a.kind == ValueKind::kDouble) out->Set(-x);
      else if (a.AsInt() == INT64_MIN) return OutOfRange("the result overflows");
      else out->Set(-a.AsInt());
      return OkStatus();
    case Prim::kNot: out->Set(!a.AsBool()); return OkStatus();
    case Prim::kToFloat: out->Set(x); return OkStatus();
    case Prim::kToInt: out->Set(a.AsInt()); return OkStatus();
    default: {
      Value rounded;
      rounded.Set(prim == Prim::kCeil ? std::ceil(x) : prim == Prim::kRound ? std::nearbyint(x) : std::trunc(x));
      out->Set(a.kind == ValueKind::kDouble ? rounded.AsInt() : a.AsInt());
      return OkStatus();
    }
  }
}

Status ReadItem(const TensorView& t, Value* out) {
  if (t.numel() != 1) return InvalidArgument("a number is taken from a tensor of ", t.numel(), " elements");
  switch (t.dtype) {
    case DType::kBool: out->Set(*t.as<uint8_t>() != 0); return OkStatus();
    case DType::kU8: out->Set(int64_t{*t.as<uint8_t>()}); return OkStatus();
    case DType::kI8: out->Set(int64_t{*t.as<int8_t>()}); return OkStatus();
    case DType::kI16: out->Set(int64_t{*t.as<int16_t>()}); return OkStatus();
    case DType::kI32: out->Set(int64_t{*t.as<int32_t>()}); return OkStatus();
    case DType::kI64: out->Set(*t.as<int64_t>()); return OkStatus();
    case DType::kF32: out->Set(double{*t.as<float>()}); return OkStatus();
    case DType::kF64: out->Set(*t.as<double>()); return OkStatus();
    default: return Unsupported("a number is taken from a tensor of type ", Name(t.dtype));
  }
}

Status RunView(MethodImpl* m, const PrimStep& step) {
  const Tensor& from = m->table.tensors[m->table.values[step.arguments[0]].tensor];
  const uint32_t result = m->table.values[step.result].tensor;
  Tensor& to = m->table.tensors[result];
  std::array<int64_t, kMaxRank> sizes{};
  const auto& items = *m->table.values[step.arguments[1]].source->val_as_IntList()->items();
  if (items.size() != to.view.rank || from.view.dtype != to.view.dtype) return Corrupt("the view's type does not fit its sizes");
  int64_t product = 1;
  size_t bytes = 0;
  int free = -1;
  for (uint32_t i = 0; i < items.size(); ++i) {
    sizes[i] = m->table.values[static_cast<size_t>(items.Get(i))].AsInt();
    if (sizes[i] == -1 && free < 0) free = static_cast<int>(i);
    else if (sizes[i] < 0 || __builtin_mul_overflow(product, sizes[i], &product)) return OutOfRange("the view has size ", sizes[i], " at dimension ", i);
  }
  if (free >= 0) {
    if (product == 0) return OutOfRange("the view has any size at dimension ", free);
    sizes[static_cast<size_t>(free)] = from.view.numel() / product;
    product *= sizes[static_cast<size_t>(free)];
  }
  if (product != from.view.numel() || !ByteCount(to.view.dtype, {sizes.data(), items.size()}, &bytes))
    return OutOfRange("a view of ", from.view.numel(), " elements cannot have ", product);
  std::copy(sizes.begin(), sizes.end(), to.view.sizes.begin());
  to.view.data = from.view.data;
  return OkStatus();
}

Status RunPrim(MethodImpl* m, const PrimStep& step) {
  std::vector<Value>& values = m->table.values;
  Value& out = values[step.result];
  switch (step.prim) {
    case Prim::kSize: {
      const TensorView& t = m->table.tensors[values[step.arguments[0]].tensor].view;
      int64_t d = values[step.arguments[1]].AsInt();
      if (d < 0) d += t.rank;
      if (d < 0 || d >= t.rank) return OutOfRange("a tensor of rank ", t.rank, " has no dimension ", d);
      out.Set(t.sizes[static_cast<size_t>(d)]);
      return OkStatus();
    }
    case Prim::kNumel: out.Set(m->table.tensors[values[step.arguments[0]].tensor].view.numel()); return OkStatus();
    case Prim::kItem: return ReadItem(m->table.tensors[values[step.arguments[0]].tensor].view, &out);
    case Prim::kView: return RunView(m, step);
    case Prim::kIfElse: {
      const Value& chosen = values[step.arguments[values[step.arguments[0]].AsBool() ? 1 : 2]];
      out.kind = chosen.kind;
      out.i = chosen.i;
      return OkStatus();
    }
    case Prim::kNeg: case Prim::kNot: case Prim::kToFloat: case Prim::kToInt: case Prim::kCeil: case Prim::kRound: case Prim::kTrunc:
      return RunUnary(step.prim, values[step.arguments[0]], &out);
    default: return RunArithmetic(step.prim, values[step.arguments[0]], values[step.arguments[1]], &out);
  }
}

Status RunMove(MethodImpl* m, const MoveStep& step) {
  const Value& from = m->table.values[step.from];
  Value& to = m->table.values[step.to];
  if (from.kind != ValueKind::kTensor) {
    to.kind = from.kind;
    to.i = from.i;
    return OkStatus();
  }
  const TensorView source = m->table.tensors[from.tensor].view;
  DT_RETURN_IF_ERROR(Resize(m, to.tensor, source.shape()));
  void* target = m->table.tensors[to.tensor].view.data;
  if (source.nbytes() > 0 && target != source.data) std::memmove(target, source.data, source.nbytes());
  return OkStatus();
}

// False if any element is.
bool Condition(const MethodImpl& m, uint32_t value) {
  const Value& v = m.table.values[value];
  if (v.kind != ValueKind::kTensor) return v.AsBool();
  const TensorView& t = m.table.tensors[v.tensor].view;
  const auto* bytes = t.as<const uint8_t>();
  return std::all_of(bytes, bytes + t.nbytes(), [](uint8_t b) { return b != 0; });
}

Status SetInputs(MethodImpl* m, std::span<const TensorView> inputs) {
  const auto& indices = *m->data().plan->inputs();
  for (uint32_t i = 0; i < indices.size(); ++i) {
    Value& v = m->table.values[static_cast<size_t>(indices.Get(i))];
    if (v.kind != ValueKind::kTensor) {
      if (v.is_number()) DT_RETURN_IF_ERROR(ReadItem(inputs[i], &v));
      continue;
    }
    DT_RETURN_IF_ERROR(Resize(m, v.tensor, inputs[i].shape()));
    Tensor& t = m->table.tensors[v.tensor];
    if (t.storage == Storage::kBorrowed) t.view.data = inputs[i].data;
    else if (inputs[i].nbytes() > 0 && t.view.data != inputs[i].data) std::memmove(t.view.data, inputs[i].data, inputs[i].nbytes());
  }
  return OkStatus();
}

TensorView OutputOf(MethodImpl* m, int32_t index) {
  Value& v = m->table.values[static_cast<size_t>(index)];
  if (v.kind == ValueKind::kTensor) return m->table.tensors[v.tensor].view;
  const DType dtype = v.kind == ValueKind::kInt      ? DType::kI64
                      : v.kind == ValueKind::kDouble ? DType::kF64
                      : v.kind == ValueKind::kBool   ? DType::kBool
                                                     : DType::kNone;
  return dtype == DType::kNone ? TensorView() : TensorView(dtype, {}, &v.i);
}

Status RunStep(MethodImpl* m, Step* step, size_t* next) {
  if (auto* kernel = std::get_if<KernelStep>(step)) return RunKernel(m, kernel);
  if (auto* delegate = std::get_if<DelegateStep>(step)) return RunDelegate(m, delegate);
  if (auto* prim = std::get_if<PrimStep>(step)) return RunPrim(m, *prim);
  if (auto* move = std::get_if<MoveStep>(step)) return RunMove(m, *move);
  if (auto* jump = std::get_if<JumpStep>(step); jump && !Condition(*m, jump->condition)) *next = jump->destination;
  return OkStatus();
}

void RecordStep(const MethodImpl& m, size_t at, int64_t start, Profiler* profiler) {
  profiler->Record({m.info().name, m.step_names[at], static_cast<uint32_t>(at), Profiler::kNoNode, start, Profiler::Now()});
  if (profiler->describing()) DescribeWork(m, at, profiler);
}

}  // namespace

Status InferStep(MethodImpl* m, KernelStep* step) {
  if (m->operand_types.size() < step->in_views.size()) m->operand_types.resize(step->in_views.size());
  if (m->result_types.size() < step->outputs.size()) m->result_types.resize(step->outputs.size());
  for (size_t i = 0; i < step->in_views.size(); ++i) m->operand_types[i] = step->in_views[i].type();
  const std::span<TensorType> results(m->result_types.data(), step->outputs.size());
  DT_RETURN_IF_ERROR(step->op.def->infer({{m->operand_types.data(), step->in_views.size()}, step->attrs, results, {}}));
  for (size_t r = 0; r < results.size(); ++r) {
    Tensor& t = m->table.tensors[step->outputs[r]];
    if (results[r].dtype != t.view.dtype)
      return Corrupt("output ", r, " is ", results[r].ToString(), ", but ", DescribeValue(m->table, t.value), " has another element type");
    std::array<int64_t, kMaxRank> sizes{};
    for (size_t d = 0; d < results[r].rank(); ++d) sizes[d] = results[r].shape[d].constant().value_or(-1);
    DT_RETURN_IF_ERROR(Resize(m, step->outputs[r], {sizes.data(), results[r].rank()}));
    step->out_views[r] = t.view;
  }
  step->empty = std::all_of(step->out_views.begin(), step->out_views.end(), [](const TensorView& t) { return t.nbytes() == 0; });
  if (step->op.scratch) {
    step->scratch_bytes = step->op.scratch(ContextOf(*m, *step));
    if (step->scratch_bytes > m->scratch.size()) {
      const size_t more = step->scratch_bytes - m->scratch.size();
      AlignedBuffer larger;
      if (more > m->instance->memory_left || !larger.Allocate(step->scratch_bytes))
        return OutOfRange("no memory for ", step->scratch_bytes, " bytes of scratch");
      m->instance->memory_left -= more;
      m->scratch = std::move(larger);
    }
  }
  step->inferred = true;
  return OkStatus();
}

Status RunMethod(MethodImpl* m, std::span<const TensorView> inputs) {
  DT_RETURN_IF_ERROR(m->inputs.Run(inputs));
  DT_RETURN_IF_ERROR(SetInputs(m, inputs));
  Profiler* profiler = m->instance->options.profiler;
  const int64_t call_start = profiler ? Profiler::Now() : 0;
  const size_t limit = m->instance->options.instruction_limit;
  size_t done = 0;
  for (size_t at = 0; at < m->steps.size();) {
    if (done++ == limit)
      return OutOfRange("a call runs at most ", limit, " instructions, the limit of this instance").At(DescribeStep(*m, at), SourceOfStep(*m, at));
    if (profiler) profiler->Begin(m->info().name, static_cast<uint32_t>(at));
    const int64_t start = profiler ? Profiler::Now() : 0;
    size_t next = at + 1;
    if (Status s = RunStep(m, &m->steps[at], &next); !s.ok()) return std::move(s).At(DescribeStep(*m, at), SourceOfStep(*m, at));
    if (profiler) RecordStep(*m, at, start, profiler);
    at = next;
  }
  const auto& indices = *m->data().plan->outputs();
  for (uint32_t i = 0; i < indices.size(); ++i) m->outputs[i] = OutputOf(m, indices.Get(i));
  if (profiler) profiler->Record({m->info().name, {}, Profiler::kWholeCall, Profiler::kNoNode, call_start, Profiler::Now()});
  return OkStatus();
}

}  // namespace dovetail
