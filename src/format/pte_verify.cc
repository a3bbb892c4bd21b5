#include "format/pte_verify.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/tensor_type.h"
#include "format/pte_reader.h"
#include "format/scalar_type.h"

namespace dovetail {
namespace {

using flatbuffers::Vector;

// More planned memory than any machine this runs on has; past it a size is certainly wrong.
constexpr int64_t kMaxPlannedBytes = int64_t{1} << 42;

class Checker {
 public:
  Checker(const pte::Program& program, uint64_t program_bytes, uint64_t segment_bytes, const std::string& name)
      : program_(program), budget_(program_bytes), segment_bytes_(segment_bytes), name_(name) {}

  Status Run() {
    if (program_.version() != 0) return Bad(Code::kUnsupported, "version ", program_.version(), " (only 0 is known)");
    DT_RETURN_IF_ERROR(Segments());
    DT_RETURN_IF_ERROR(NamedData());
    if (Size(program_.execution_plan()) == 0) return Bad("execution_plan is empty: the program has no method");
    std::vector<std::string_view> names;
    for (const pte::ExecutionPlan* plan : *program_.execution_plan()) {
      plan_ = plan;
      kind_ = nullptr;
      if (!plan->name()) return Bad("a method has no name");
      names.push_back(plan->name()->string_view());
      DT_RETURN_IF_ERROR(Spend(names.back().size()));
      DT_RETURN_IF_ERROR(Plan());
    }
    plan_ = nullptr;
    kind_ = nullptr;
    std::sort(names.begin(), names.end());
    if (auto it = std::adjacent_find(names.begin(), names.end()); it != names.end()) return Bad("two methods are named '", *it, "'");
    return OkStatus();
  }

 private:
  // ---- errors: the place is put together only when there is one ----
  template <class... Ts>
  Status Bad(Code code, const Ts&... parts) const {
    std::string where = StrCat("'", name_, "': ");
    if (plan_ && plan_->name()) where += StrCat("method '", plan_->name()->string_view().substr(0, 80), "': ");
    if (kind_) where += StrCat(kind_, "[", index_, "]: ");
    return Status(code, StrCat(where, parts...));
  }
  template <class... Ts>
  Status Bad(const Ts&... parts) const { return Bad(Code::kCorrupt, parts...); }
  void At(const char* kind, size_t index) {
    kind_ = kind;
    index_ = index;
  }

  template <class T>
  static size_t Size(const Vector<T>* v) { return v ? v->size() : 0; }

  // Hostile files let many tables share one vector. Files that share nothing have fewer items than bytes, so the time of
  // the check stays linear in the file.
  Status Spend(uint64_t items) {
    if (items > budget_) return Bad("tables share their contents in a way no writer produces");
    budget_ -= items;
    return OkStatus();
  }
  // flatbuffers checks the alignment of a vector's length only.
  template <class T>
  Status Items(const Vector<T>* v, const char* field, bool required) {
    if (!v) return required ? Bad(field, " is missing") : OkStatus();
    if (v->size() > 0 && reinterpret_cast<uintptr_t>(v->Data()) % alignof(T) != 0) return Bad(field, " is not aligned");
    return Spend(v->size());
  }
  template <class T>
  Status Indices(const Vector<T>* v, const char* field, bool required) {
    DT_RETURN_IF_ERROR(Items(v, field, required));
    const int64_t count = static_cast<int64_t>(plan_->values()->size());
    for (size_t i = 0; i < Size(v); ++i) {
      const int64_t index = v->Get(static_cast<uint32_t>(i));
      if (index < 0 || index >= count) return Bad(field, "[", i, "] is ", index, ", but there are ", count, " values");
    }
    return OkStatus();
  }
  Status Value(int64_t index, const char* field) const {
    const int64_t count = static_cast<int64_t>(plan_->values()->size());
    if (index < 0 || index >= count) return Bad(field, " is ", index, ", but there are ", count, " values");
    return OkStatus();
  }
  pte::KernelTypes Kind(int64_t index) const { return plan_->values()->Get(static_cast<uint32_t>(index))->val_type(); }
  const pte::Tensor* TensorAt(int64_t index) const { return plan_->values()->Get(static_cast<uint32_t>(index))->val_as_Tensor(); }

  // ---- the program's tables ----
  Status Segments() {
    for (size_t i = 0; i < Size(program_.segments()); ++i) {
      At("segments", i);
      const pte::DataSegment* s = program_.segments()->Get(static_cast<uint32_t>(i));
      if (s->offset() > segment_bytes_ || s->size() > segment_bytes_ - s->offset())
        return Bad(s->size(), " bytes at offset ", s->offset(), " pass the end of the file, which has ", segment_bytes_,
                   " bytes of segments: it is truncated or corrupt");
    }
    kind_ = nullptr;
    DT_RETURN_IF_ERROR(Spend(Size(program_.segments())));
    const bool has_offsets = program_.constant_segment() && Size(program_.constant_segment()->offsets()) > 0;
    if (has_offsets && Size(program_.constant_buffer()) > 0) return Bad("has both constant_segment and constant_buffer");
    if (has_offsets) DT_RETURN_IF_ERROR(Subsegments(*program_.constant_segment(), "constant_segment"));
    for (size_t i = 0; i < Size(program_.mutable_data_segments()); ++i) {
      At("mutable_data_segments", i);
      DT_RETURN_IF_ERROR(Subsegments(*program_.mutable_data_segments()->Get(static_cast<uint32_t>(i)), "offsets"));
    }
    kind_ = nullptr;
    return OkStatus();
  }

  Status Subsegments(const pte::SubsegmentOffsets& s, const char* field) {
    DT_RETURN_IF_ERROR(Items(s.offsets(), field, false));
    // A lone reserved entry needs no segment.
    if (Size(s.offsets()) > 1 && s.segment_index() >= Size(program_.segments()))
      return Bad(field, " is in segment ", s.segment_index(), ", but there are ", Size(program_.segments()));
    return OkStatus();
  }

  Status NamedData() {
    std::vector<std::string_view> keys;
    for (size_t i = 0; i < Size(program_.named_data()); ++i) {
      At("named_data", i);
      const pte::NamedData* n = program_.named_data()->Get(static_cast<uint32_t>(i));
      if (!n->key()) return Bad("key is missing");
      if (n->segment_index() >= Size(program_.segments()))
        return Bad("'", n->key()->string_view().substr(0, 80), "' is in segment ", n->segment_index(), ", but there are ", Size(program_.segments()));
      keys.push_back(n->key()->string_view());
      DT_RETURN_IF_ERROR(Spend(keys.back().size()));
    }
    kind_ = nullptr;
    std::sort(keys.begin(), keys.end());
    if (auto it = std::adjacent_find(keys.begin(), keys.end()); it != keys.end()) return Bad("named_data has the key '", it->substr(0, 80), "' twice");
    return OkStatus();
  }

  // ---- one method ----
  Status Plan() {
    if (!plan_->values()) return Bad("values is missing");
    DT_RETURN_IF_ERROR(PlannedMemory());
    for (size_t i = 0; i < plan_->values()->size(); ++i) {
      At("values", i);
      DT_RETURN_IF_ERROR(OneValue(*plan_->values()->Get(static_cast<uint32_t>(i))));
    }
    kind_ = nullptr;
    DT_RETURN_IF_ERROR(Indices(plan_->inputs(), "inputs", true));
    DT_RETURN_IF_ERROR(Indices(plan_->outputs(), "outputs", true));
    for (size_t i = 0; i < Size(plan_->operators()); ++i) {
      At("operators", i);
      const pte::Operator* op = plan_->operators()->Get(static_cast<uint32_t>(i));
      if (!op->name() || !op->overload()) return Bad("name or overload is missing");
      DT_RETURN_IF_ERROR(Spend(op->name()->size()));
    }
    for (size_t i = 0; i < Size(plan_->delegates()); ++i) {
      At("delegates", i);
      DT_RETURN_IF_ERROR(Delegate(*plan_->delegates()->Get(static_cast<uint32_t>(i))));
    }
    kind_ = nullptr;
    if (Size(plan_->chains()) == 0) return Bad("chains is empty: the method has no instructions");
    for (const pte::Chain* chain : *plan_->chains()) {
      kind_ = nullptr;
      if (!chain->instructions()) return Bad("chain.instructions is missing");
      for (size_t i = 0; i < chain->instructions()->size(); ++i) {
        At("instructions", i);
        DT_RETURN_IF_ERROR(Instruction(*chain->instructions()->Get(static_cast<uint32_t>(i)), chain->instructions()->size()));
      }
    }
    return OkStatus();
  }

  Status PlannedMemory() {
    const Vector<int64_t>* sizes = plan_->non_const_buffer_sizes();
    DT_RETURN_IF_ERROR(Items(sizes, "non_const_buffer_sizes", false));
    int64_t total = 0;
    for (size_t i = 1; i < Size(sizes); ++i) {
      const int64_t size = sizes->Get(static_cast<uint32_t>(i));
      if (size < 0 || size > kMaxPlannedBytes - total) return Bad("non_const_buffer_sizes[", i, "] is ", size);
      total += size;
    }
    for (size_t i = 0; i < Size(plan_->non_const_buffer_device()); ++i)
      if (plan_->non_const_buffer_device()->Get(static_cast<uint32_t>(i))->device_type() != pte::DeviceType::CPU)
        return Bad(Code::kUnsupported, "non_const_buffer_device[", i, "] is not the CPU");
    return OkStatus();
  }

  Status OneValue(const pte::EValue& value) {
    if (value.val_type() == pte::KernelTypes::NONE || value.val_type() > pte::KernelTypes::MAX)
      return Bad("is of unknown kind ", static_cast<int>(value.val_type()));
    if (!value.val()) return Bad("val is missing");
    switch (value.val_type()) {
      case pte::KernelTypes::Tensor: return Tensor(*value.val_as_Tensor());
      case pte::KernelTypes::String:
        if (!value.val_as_String()->string_val()) return Bad("string_val is missing");
        return OkStatus();
      case pte::KernelTypes::DoubleList: return Items(value.val_as_DoubleList()->items(), "items", true);
      case pte::KernelTypes::BoolList: return Items(value.val_as_BoolList()->items(), "items", true);
      case pte::KernelTypes::IntList: {
        const auto* items = value.val_as_IntList()->items();
        DT_RETURN_IF_ERROR(Indices(items, "items", true));
        for (int64_t i : *items)
          if (Kind(i) != pte::KernelTypes::Int) return Bad("items names value ", i, ", which is not an Int");
        return OkStatus();
      }
      case pte::KernelTypes::TensorList: {
        const auto* items = value.val_as_TensorList()->items();
        DT_RETURN_IF_ERROR(Indices(items, "items", true));
        for (int32_t i : *items)
          if (Kind(i) != pte::KernelTypes::Tensor) return Bad("items names value ", i, ", which is not a Tensor");
        return OkStatus();
      }
      case pte::KernelTypes::OptionalTensorList: {
        const auto* items = value.val_as_OptionalTensorList()->items();
        DT_RETURN_IF_ERROR(Items(items, "items", true));
        for (int32_t i : *items) {
          if (i == -1) continue;
          DT_RETURN_IF_ERROR(Value(i, "items"));
          if (Kind(i) != pte::KernelTypes::Tensor && Kind(i) != pte::KernelTypes::Null)
            return Bad("items names value ", i, ", which is neither a Tensor nor None");
        }
        return OkStatus();
      }
      default: return OkStatus();
    }
  }

  Status Tensor(const pte::Tensor& t) {
    const DType dtype = FromScalarType(t.scalar_type());
    if (dtype == DType::kNone) return Bad(Code::kUnsupported, "scalar_type ", static_cast<int>(t.scalar_type()), " is not one that Dovetail has");
    if (t.storage_offset() != 0) return Bad(Code::kUnsupported, "storage_offset is ", t.storage_offset(), ", not 0");
    DT_RETURN_IF_ERROR(Items(t.sizes(), "sizes", false));
    DT_RETURN_IF_ERROR(Items(t.dim_order(), "dim_order", false));
    const size_t rank = Size(t.sizes());
    if (rank > kMaxRank) return Bad(Code::kUnsupported, "has ", rank, " dimensions (at most ", kMaxRank, ")");
    uint64_t bytes = ByteSize(dtype);
    for (size_t i = 0; i < rank; ++i) {
      const int32_t size = t.sizes()->Get(static_cast<uint32_t>(i));
      if (size < 0) return Bad("sizes[", i, "] is ", size);
      // Zero dims must not hide an overflow: a runtime may multiply the others first.
      if (size > 1 && bytes > (uint64_t{1} << 62) / static_cast<uint64_t>(size)) return Bad("the product of sizes overflows");
      if (size > 1) bytes *= static_cast<uint64_t>(size);
    }
    if (Size(t.dim_order()) != rank) return Bad("dim_order has ", Size(t.dim_order()), " entries for ", rank, " dimensions");
    uint32_t seen = 0;
    for (size_t i = 0; i < rank; ++i) {
      const uint8_t d = t.dim_order()->Get(static_cast<uint32_t>(i));
      if (d >= rank || (seen >> d & 1)) return Bad("dim_order is not a permutation");
      seen |= 1u << d;
    }
    if (t.shape_dynamism() > pte::TensorShapeDynamism::MAX || t.shape_dynamism() < pte::TensorShapeDynamism::MIN)
      return Bad("shape_dynamism is ", static_cast<int>(t.shape_dynamism()));
    const pte::ExtraTensorInfo* extra = t.extra_tensor_info();
    if (extra && extra->device_type() != pte::DeviceType::CPU) return Bad(Code::kUnsupported, "lives on a device other than the CPU");
    if (extra && extra->location() == pte::TensorDataLocation::EXTERNAL) {
      if (!extra->fully_qualified_name() || extra->fully_qualified_name()->size() == 0) return Bad("is external but has no fully_qualified_name");
    } else if (extra && extra->location() != pte::TensorDataLocation::SEGMENT) {
      return Bad("extra_tensor_info.location is ", static_cast<int>(extra->location()));
    }
    if (t.allocation_info()) DT_RETURN_IF_ERROR(Allocation(t, TensorBytes(t), ByteSize(dtype)));
    if (t.data_buffer_idx() != 0 && !IsExternal(t)) DT_RETURN_IF_ERROR(TensorData(t, TensorBytes(t), ByteSize(dtype)));
    return OkStatus();
  }

  Status Allocation(const pte::Tensor& t, uint64_t bytes, uint64_t element) const {
    const pte::AllocationDetails& a = *t.allocation_info();
    const size_t buffers = Size(plan_->non_const_buffer_sizes());
    if (a.memory_id() == 0 || a.memory_id() >= buffers)
      return Bad("memory_id is ", a.memory_id(), ", but non_const_buffer_sizes has ", buffers, " entries (the first is reserved)");
    const uint64_t size = static_cast<uint64_t>(plan_->non_const_buffer_sizes()->Get(a.memory_id()));
    const uint64_t offset = AllocationOffset(a);
    if (offset > size || bytes > size - offset)
      return Bad(bytes, " bytes at offset ", offset, " pass the end of planned memory ", a.memory_id(), " (", size, " bytes)");
    if (offset % element != 0) return Bad("memory offset ", offset, " is not a multiple of the element size ", element);
    return OkStatus();
  }

  Status TensorData(const pte::Tensor& t, uint64_t bytes, uint64_t element) const {
    const uint32_t index = t.data_buffer_idx();
    const pte::SubsegmentOffsets* table;
    if (t.allocation_info()) {
      const uint64_t which = t.extra_tensor_info() ? t.extra_tensor_info()->mutable_data_segments_idx() : 0;
      if (which >= Size(program_.mutable_data_segments()))
        return Bad("has its initial value in mutable_data_segments[", which, "], but there are ", Size(program_.mutable_data_segments()));
      table = program_.mutable_data_segments()->Get(static_cast<uint32_t>(which));
    } else if (Size(program_.constant_buffer()) > 0) {
      if (index >= program_.constant_buffer()->size()) return Bad("data_buffer_idx ", index, " of ", program_.constant_buffer()->size());
      const auto* storage = program_.constant_buffer()->Get(index)->storage();
      if (Size(storage) < bytes) return Bad("needs ", bytes, " bytes of constant_buffer[", index, "], which has ", Size(storage));
      if (bytes > 0 && reinterpret_cast<uintptr_t>(storage->Data()) % element != 0) return Bad("constant_buffer[", index, "] is not aligned");
      return OkStatus();
    } else {
      table = program_.constant_segment();
    }
    const size_t count = table ? Size(table->offsets()) : 0;
    if (index >= count) return Bad("data_buffer_idx is ", index, ", but there are ", count, " offsets");
    const pte::DataSegment* segment = program_.segments()->Get(table->segment_index());
    const uint64_t offset = table->offsets()->Get(index);
    if (offset > segment->size() || bytes > segment->size() - offset)
      return Bad("needs ", bytes, " bytes at offset ", offset, " of segment ", table->segment_index(), ", which has ", segment->size());
    // Initial values are copied, constants are read in place.
    if (!t.allocation_info() && (segment->offset() + offset) % element != 0) return Bad("data is not aligned to its element size");
    return OkStatus();
  }

  Status Delegate(const pte::BackendDelegate& d) {
    if (!d.id()) return Bad("id is missing");
    const pte::BackendDelegateDataReference* p = d.processed();
    if (!p) return Bad("processed is missing");
    const bool in_line = p->location() == pte::DataLocation::INLINE;
    if (!in_line && p->location() != pte::DataLocation::SEGMENT) return Bad("processed.location is ", static_cast<int>(p->location()));
    const size_t count = in_line ? Size(program_.backend_delegate_data()) : Size(program_.segments());
    if (p->index() >= count) return Bad("processed.index is ", p->index(), ", but there are ", count);
    DT_RETURN_IF_ERROR(Spend(d.id()->size() + Size(d.compile_specs())));
    for (size_t i = 0; i < Size(d.compile_specs()); ++i)
      if (!d.compile_specs()->Get(static_cast<uint32_t>(i))->key()) return Bad("compile_specs[", i, "].key is missing");
    return OkStatus();
  }

  Status Instruction(const pte::Instruction& instruction, size_t count) {
    if (!instruction.instr_args()) return Bad("instr_args is missing");
    switch (instruction.instr_args_type()) {
      case pte::InstructionArguments::KernelCall: {
        const auto& call = *instruction.instr_args_as_KernelCall();
        if (call.op_index() < 0 || static_cast<size_t>(call.op_index()) >= Size(plan_->operators()))
          return Bad("op_index is ", call.op_index(), ", but there are ", Size(plan_->operators()), " operators");
        return Indices(call.args(), "args", true);
      }
      case pte::InstructionArguments::DelegateCall: {
        const auto& call = *instruction.instr_args_as_DelegateCall();
        if (call.delegate_index() < 0 || static_cast<size_t>(call.delegate_index()) >= Size(plan_->delegates()))
          return Bad("delegate_index is ", call.delegate_index(), ", but there are ", Size(plan_->delegates()), " delegates");
        return Indices(call.args(), "args", true);
      }
      case pte::InstructionArguments::MoveCall: {
        const auto& move = *instruction.instr_args_as_MoveCall();
        DT_RETURN_IF_ERROR(Value(move.move_from(), "move_from"));
        DT_RETURN_IF_ERROR(Value(move.move_to(), "move_to"));
        if (Kind(move.move_from()) != Kind(move.move_to())) return Bad("moves between values of different kinds");
        if (Kind(move.move_from()) == pte::KernelTypes::Tensor) {
          const pte::Tensor *from = TensorAt(move.move_from()), *to = TensorAt(move.move_to());
          if (from->scalar_type() != to->scalar_type() || Size(from->sizes()) != Size(to->sizes()))
            return Bad("moves between tensors of different dtype or rank");
        }
        return OkStatus();
      }
      case pte::InstructionArguments::JumpFalseCall: {
        const auto& jump = *instruction.instr_args_as_JumpFalseCall();
        DT_RETURN_IF_ERROR(Value(jump.cond_value_index(), "cond_value_index"));
        const pte::Tensor* tensor = TensorAt(jump.cond_value_index());
        const bool is_bool = tensor ? tensor->scalar_type() == pte::ScalarType::BOOL : Kind(jump.cond_value_index()) == pte::KernelTypes::Bool;
        if (!is_bool) return Bad("cond_value_index names a value that is not a bool");
        if (jump.destination_instruction() < 0 || static_cast<size_t>(jump.destination_instruction()) > count)
          return Bad("destination_instruction is ", jump.destination_instruction(), " of ", count);
        return OkStatus();
      }
      case pte::InstructionArguments::FreeCall: {
        const int32_t value = instruction.instr_args_as_FreeCall()->value_index();
        DT_RETURN_IF_ERROR(Value(value, "value_index"));
        if (Kind(value) != pte::KernelTypes::Tensor) return Bad("frees a value that is not a Tensor");
        return OkStatus();
      }
      default: return Bad("is of unknown kind ", static_cast<int>(instruction.instr_args_type()));
    }
  }

  const pte::Program& program_;
  uint64_t budget_;
  const uint64_t segment_bytes_;
  const std::string& name_;
  const pte::ExecutionPlan* plan_ = nullptr;
  const char* kind_ = nullptr;
  size_t index_ = 0;
};

}  // namespace

Status VerifyProgram(const pte::Program& program, uint64_t program_bytes, uint64_t segment_bytes, const std::string& name) {
  return Checker(program, program_bytes, segment_bytes, name).Run();
}

}  // namespace dovetail
