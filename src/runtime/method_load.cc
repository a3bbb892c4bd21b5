#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "runtime/method_impl.h"
#include "runtime/thread_pool.h"

namespace dovetail {
namespace {

class Placer {
 public:
  explicit Placer(MethodImpl* m) : m_(*m), plan_(*m->data().plan) {}

  Status Run() {
    viewed_.resize(m_.table.tensors.size());
    DT_RETURN_IF_ERROR(FindViews());
    FindWritten();
    FindInputs();
    DT_RETURN_IF_ERROR(MakeArenas());
    m_.owned.resize(m_.table.tensors.size());
    for (size_t t = 0; t < m_.table.tensors.size(); ++t) DT_RETURN_IF_ERROR(Place(t));
    for (Tensor& t : m_.table.tensors)
      if (t.storage == Storage::kView) t.view.data = m_.table.tensors[t.root].view.data;
    DT_RETURN_IF_ERROR(CheckViews());
    return CheckOverlap();
  }

 private:
  Tensor& tensor(size_t t) { return m_.table.tensors[t]; }
  bool IsTensor(uint32_t value) const { return m_.table.values[value].kind == ValueKind::kTensor; }

  // A tensor that an instruction makes a view of another one: of one memory only, which is no view itself.
  Status FindViews() {
    auto view = [&](uint32_t result, uint32_t of) -> Status {
      Tensor& t = tensor(result);
      const uint32_t root = tensor(of).root;
      if (root == result || (t.storage == Storage::kView && root == t.root)) return OkStatus();
      if (t.storage == Storage::kView || viewed_[result])
        return Corrupt("'", m_.program->name, "': method '", m_.info().name, "' makes ", DescribeValue(m_.table, t.value), " a view of ",
                       DescribeValue(m_.table, tensor(of).value), ", but it is another view already or has views itself");
      t.storage = Storage::kView;
      t.root = root;
      viewed_[root] = true;
      return OkStatus();
    };
    for (const Step& step : m_.steps) {
      if (const auto* kernel = std::get_if<KernelStep>(&step); kernel && kernel->result_view >= 0)
        DT_RETURN_IF_ERROR(view(static_cast<uint32_t>(kernel->result_view), kernel->outputs[0]));
      if (const auto* prim = std::get_if<PrimStep>(&step); prim && prim->prim == Prim::kView)
        DT_RETURN_IF_ERROR(view(m_.table.values[prim->result].tensor, m_.table.values[prim->arguments[0]].tensor));
    }
    return OkStatus();
  }

  void FindWritten() {
    auto write = [&](uint32_t t) { tensor(t).written = tensor(tensor(t).root).written = true; };
    for (const Step& step : m_.steps) {
      if (const auto* kernel = std::get_if<KernelStep>(&step)) {
        for (uint32_t t : kernel->outputs) write(t);
      } else if (const auto* delegate = std::get_if<DelegateStep>(&step)) {
        for (size_t i = delegate->num_inputs; i < delegate->arguments.size(); ++i) write(delegate->arguments[i]);
      } else if (const auto* move = std::get_if<MoveStep>(&step)) {
        if (IsTensor(move->to)) write(m_.table.values[move->to].tensor);
      }
    }
  }

  void FindInputs() {
    for (int32_t v : *plan_.inputs())
      if (IsTensor(static_cast<uint32_t>(v))) inputs_.insert(m_.table.values[static_cast<size_t>(v)].tensor);
  }
  // By an instruction or by the copy of an input.
  bool IsWritten(size_t index) { return tensor(index).written || inputs_.contains(index); }

  bool IsState(const Tensor& t) const { return m_.data().state_of_value[t.value] >= 0; }

  Status Take(AlignedBuffer* buffer, size_t bytes, std::string_view what) {
    size_t& left = m_.instance->memory_left;
    if (bytes > left)
      return OutOfRange("'", m_.program->name, "': method '", m_.info().name, "' needs ", bytes, " bytes of ", what, "; the memory limit leaves ", left);
    if (!buffer->Allocate(bytes)) return OutOfRange("'", m_.program->name, "': no memory for ", bytes, " bytes of ", what, " of method '", m_.info().name, "'");
    left -= bytes;
    return OkStatus();
  }

  // Arenas that hold something else than states, which have their own memory.
  Status MakeArenas() {
    const auto* sizes = plan_.non_const_buffer_sizes();
    m_.arenas.resize(sizes ? sizes->size() : 0);
    std::vector<bool> used(m_.arenas.size());
    for (const Tensor& t : m_.table.tensors) {
      const auto* place = t.source->allocation_info();
      if (place && !IsState(t) && t.storage != Storage::kView) used[place->memory_id()] = true;
    }
    for (uint32_t id = 1; id < m_.arenas.size(); ++id)
      if (used[id]) DT_RETURN_IF_ERROR(Take(&m_.arenas[id], static_cast<size_t>(sizes->Get(id)), "planned memory"));
    return OkStatus();
  }

  Status Place(size_t index) {
    Tensor& t = tensor(index);
    if (t.storage == Storage::kView) return OkStatus();
    const pte::Tensor& source = *t.source;
    if (IsState(t)) {
      t.storage = Storage::kState;
      t.view.data = m_.instance->states.data(static_cast<size_t>(m_.data().state_of_value[t.value]));
      return OkStatus();
    }
    if (const auto* place = source.allocation_info()) {
      t.storage = Storage::kPlanned;
      t.view.data = m_.arenas[place->memory_id()].data() + AllocationOffset(*place);
      return OkStatus();
    }
    if (IsExternal(source))
      return Unsupported("'", m_.program->name, "': the tensor '",
                         source.extra_tensor_info()->fully_qualified_name() ? source.extra_tensor_info()->fully_qualified_name()->str() : "",
                         "' has its data in another file (.ptd), which this runtime does not read");
    if (IsConstant(source)) {
      if (IsWritten(index)) return Corrupt("'", m_.program->name, "': method '", m_.info().name, "' writes the constant ", DescribeValue(m_.table, t.value));
      t.storage = Storage::kConstant;
      t.view.data = const_cast<std::byte*>(m_.program->view.ConstantData(source).data());  // never written: checked above
      return OkStatus();
    }
    if (inputs_.contains(index) && m_.instance->options.borrow_inputs && !t.written && !viewed_[index] && !t.growable) {
      t.storage = Storage::kBorrowed;
      return OkStatus();
    }
    t.storage = Storage::kOwned;
    DT_RETURN_IF_ERROR(Take(&m_.owned[index], t.capacity, "tensors without planned memory"));
    t.view.data = m_.owned[index].data();
    return OkStatus();
  }

  Status CheckViews() {
    for (size_t index = 0; index < m_.table.tensors.size(); ++index) {
      Tensor& t = tensor(index);
      if (t.storage != Storage::kView) continue;
      const Tensor& root = tensor(t.root);
      if (root.storage == Storage::kConstant && IsWritten(index))
        return Corrupt("'", m_.program->name, "': method '", m_.info().name, "' writes a constant through ", DescribeValue(m_.table, t.value));
      // Whoever reads it before it is made must find memory too.
      if (t.capacity > root.capacity) {
        if (t.fixed || t.view.rank == 0 || t.written)
          return Corrupt("'", m_.program->name, "': method '", m_.info().name, "' has ", DescribeValue(m_.table, t.value), ", a view of the smaller ",
                         DescribeValue(m_.table, root.value));
        t.view.sizes = {};
      }
      t.capacity = root.capacity;
      t.growable = root.growable;
    }
    return OkStatus();
  }

  // Kernels take it that what they write is not what they read, but for the tensor that an operator in place updates: written
  // indices, say, would be used unchecked.
  Status CheckOverlap() {
    enum class Overlap { kNone, kSame, kPart };
    auto overlap = [&](uint32_t x, uint32_t y) {
      const Tensor &a = tensor(x), &b = tensor(y);
      const uintptr_t p = reinterpret_cast<uintptr_t>(a.view.data), q = reinterpret_cast<uintptr_t>(b.view.data);
      if (a.root == b.root || (p == q && a.capacity == b.capacity)) return Overlap::kSame;
      return p < q + b.capacity && q < p + a.capacity ? Overlap::kPart : Overlap::kNone;
    };
    for (size_t s = 0; s < m_.steps.size(); ++s) {
      const auto* kernel = std::get_if<KernelStep>(&m_.steps[s]);
      if (!kernel) continue;
      const bool in_place = !kernel->op.schema->args.empty() && kernel->op.schema->args[0].written;
      auto check = [&](uint32_t out, uint32_t other, bool may_be_same) {
        const Overlap o = overlap(out, other);
        const bool empty = tensor(out).capacity == 0 && !tensor(out).growable;
        if (empty || o == Overlap::kNone || (o == Overlap::kSame && may_be_same)) return OkStatus();
        return Corrupt("writes ", DescribeValue(m_.table, tensor(out).value), ", which shares memory with ", DescribeValue(m_.table, tensor(other).value),
                       " of the same call")
            .At(DescribeStep(m_, s), SourceOfStep(m_, s));
      };
      for (size_t r = 0; r < kernel->outputs.size(); ++r) {
        for (size_t i = 0; i < kernel->operands.size(); ++i)
          if (const int32_t operand = kernel->operands[i]; operand >= 0)
            DT_RETURN_IF_ERROR(check(kernel->outputs[r], static_cast<uint32_t>(operand), in_place && i == 0));
        for (size_t k = 0; k < r; ++k) DT_RETURN_IF_ERROR(check(kernel->outputs[r], kernel->outputs[k], false));
      }
    }
    return OkStatus();
  }

  MethodImpl& m_;
  const pte::ExecutionPlan& plan_;
  std::unordered_set<size_t> inputs_;
  std::vector<bool> viewed_;  // by tensor: some other one is a view of its memory
};

const DelegateEntry* FindDelegate(const MethodImpl& m, std::string_view id) {
  for (const DelegateEntry& e : m.instance->options.delegates)
    if (e.id == id) return &e;
  return nullptr;
}

// What a delegate is made from. `specs` holds the compile specs.
DelegateInitContext InitContext(const MethodImpl& m, const pte::BackendDelegate& d, std::string_view id, std::vector<DelegateCompileSpec>* specs) {
  const ProgramData& program = *m.program;
  specs->clear();
  if (d.compile_specs())
    for (const pte::CompileSpec* spec : *d.compile_specs()) {
      specs->push_back({spec->key()->string_view(), {}});
      if (spec->value()) specs->back().value = std::as_bytes(std::span(spec->value()->data(), spec->value()->size()));
    }
  DelegateInitContext ctx;
  ctx.payload = program.view.DelegateData(d);
  ctx.method = m.info().name;
  ctx.compile_specs = *specs;
  ctx.named_data = [&program](std::string_view key) -> Result<std::span<const std::byte>> {
    if (auto data = program.view.FindNamedData(key)) return *data;
    return NotFound("'", program.name, "' has no data named '", key, "'");
  };
  ctx.check = [&program](std::span<const std::byte> bytes) { return program.Check(bytes); };
  if (program.file) ctx.release = [&program](std::span<const std::byte> bytes) { program.file->Release(bytes); };
  ctx.pool = m.instance->threads->get();
  ctx.profiler = m.instance->options.profiler;
  ctx.program = &program.source;
  ctx.program_shared = program.shared.For(id);
  return ctx;
}

// How many arguments of every delegate call are inputs: placement needs to know what is written.
Status CountDelegateInputs(MethodImpl* m) {
  const std::lock_guard lock(m->program->delegates_mutex);
  std::vector<DelegateCompileSpec> specs;
  for (size_t s = 0; s < m->steps.size(); ++s) {
    auto* step = std::get_if<DelegateStep>(&m->steps[s]);
    if (!step) continue;
    const pte::BackendDelegate& d = *m->data().plan->delegates()->Get(step->index);
    const DelegateEntry* entry = FindDelegate(*m, d.id()->string_view());
    if (!entry) return NotFound("no delegate ", d.id()->str());
    if (Status s = m->program->Check(m->program->view.DelegateData(d)); !s.ok()) return s;
    if (!entry->num_inputs) return Unsupported("delegate ", d.id()->str(), " does not tell its inputs from its outputs");
    Result<size_t> count = entry->num_inputs(InitContext(*m, d, entry->id, &specs));
    if (!count.ok()) return std::move(count).status().At(DescribeStep(*m, s), SourceOfStep(*m, s));
    if (*count > step->arguments.size())
      return Corrupt("the delegate reads ", *count, " inputs, but the call has ", step->arguments.size(), " arguments")
          .At(DescribeStep(*m, s), SourceOfStep(*m, s));
    step->num_inputs = *count;
  }
  return OkStatus();
}

Status CreateDelegates(MethodImpl* m) {
  const std::lock_guard lock(m->program->delegates_mutex);
  std::vector<DelegateCompileSpec> specs;
  // From the last: there is the head of a language model, its largest weight. While it is packed its source is in memory too, and best before
  // the packed forms of all the others are.
  for (size_t s = m->steps.size(); s-- > 0;) {
    auto* step = std::get_if<DelegateStep>(&m->steps[s]);
    if (!step) continue;
    const pte::BackendDelegate& d = *m->data().plan->delegates()->Get(step->index);
    const DelegateEntry* entry = FindDelegate(*m, d.id()->string_view());
    for (uint32_t t : step->arguments) step->views.push_back(m->table.tensors[t].view);
    DelegateInitContext ctx = InitContext(*m, d, entry->id, &specs);
    ctx.arguments = step->views;
    ctx.num_inputs = step->num_inputs;
    ctx.method_shared = m->shared.For(entry->id);
    Result<std::unique_ptr<Delegate>> made = entry->create(ctx);
    if (!made.ok()) return std::move(made).status().At(DescribeStep(*m, s), SourceOfStep(*m, s));
    step->delegate = std::move(made).value();
  }
  m->program->shared.MethodLoaded();
  return OkStatus();
}

}  // namespace

std::string DescribeStep(const MethodImpl& m, size_t step) {
  return StrCat("instruction ", step, ": ", step < m.step_names.size() ? m.step_names[step] : std::string("?"), " in method '", m.info().name, "'");
}
std::string SourceOfStep(const MethodImpl& m, size_t step) { return step < m.data().sources.size() ? m.data().sources[step] : std::string(); }

Status PlaceTensors(MethodImpl* m) { return Placer(m).Run(); }

Result<std::unique_ptr<MethodImpl>> LoadMethodImpl(InstanceData* instance, size_t index) {
  auto m = std::make_unique<MethodImpl>();
  m->program = instance->program;
  m->index = index;
  m->instance = instance;
  DT_RETURN_IF_ERROR(CheckSupport(*m->program, instance->options.delegates));
  auto named = [&](Status s) { return std::move(s).While(StrCat("loading method '", m->info().name, "' of '", m->program->name, "'")); };
  Result<ValueTable> table = LoadValues(*m->data().plan);
  if (!table.ok()) return named(std::move(table).status());
  m->table = std::move(table).value();
  if (Status s = BindInstructions(m.get()); !s.ok()) return named(std::move(s));
  if (Status s = CountDelegateInputs(m.get()); !s.ok()) return named(std::move(s));
  if (Status s = PlaceTensors(m.get()); !s.ok()) return named(std::move(s));
  if (Status s = CreateDelegates(m.get()); !s.ok()) return named(std::move(s));
  FindTableLookups(m.get());
  m->inputs.Init(m->info(), m->program->symbols);
  m->outputs.resize(m->info().outputs.size());
  return m;
}

}  // namespace dovetail
