#include "format/pte_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <type_traits>

#include "base/mapped_file.h"
#include "format/program_generated.h"
#include "format/pte_hashes.h"
#include "format/pte_verify.h"
#include "format/scalar_type.h"

namespace dovetail::pte {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

uint64_t Align(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

// ---- where things go in the file ----

struct Placed {
  uint64_t offset;  // from the start of the segment (an item) or from the segment base (a segment)
  const Payload* payload;
};

struct SegmentPlan {
  uint64_t offset = 0, size = 0;
  std::vector<Placed> items;
};

struct FilePlan {
  std::vector<SegmentPlan> segments;
  std::vector<uint64_t> constant_offsets{0}, mutable_offsets{0};  // entry 0 stands for "no data"
  uint32_t mutable_segment = 0, first_delegate_segment = 0;
  std::vector<uint32_t> named_segments;  // of ProgramDesc.named_data
  std::optional<uint32_t> hashes_segment;  // the last, without items
  uint64_t size = 0;

  uint32_t Add(SegmentPlan segment, uint64_t alignment) {
    segment.offset = Align(size, std::max(alignment, kSegmentAlignment));
    size = segment.offset + segment.size;
    segments.push_back(std::move(segment));
    return static_cast<uint32_t>(segments.size() - 1);
  }
};

SegmentPlan Whole(const Payload& payload) {
  SegmentPlan s;
  s.size = payload.size;
  s.items.push_back({0, &payload});
  return s;
}

SegmentPlan Packed(const std::vector<Payload>& payloads, std::vector<uint64_t>* offsets) {
  SegmentPlan s;
  for (const Payload& p : payloads) {
    const uint64_t offset = Align(s.size, kConstantAlignment);
    offsets->push_back(offset);
    s.items.push_back({offset, &p});
    s.size = offset + p.size;
  }
  return s;
}

Result<FilePlan> PlanFile(const ProgramDesc& program) {
  FilePlan plan;
  plan.Add(Packed(program.constants, &plan.constant_offsets), kSegmentAlignment);
  if (!program.mutable_initial.empty()) plan.mutable_segment = plan.Add(Packed(program.mutable_initial, &plan.mutable_offsets), kSegmentAlignment);
  plan.first_delegate_segment = static_cast<uint32_t>(plan.segments.size());
  if (!program.inline_delegate_blobs)
    for (const Payload& p : program.delegate_blobs) plan.Add(Whole(p), kSegmentAlignment);
  for (const NamedDataDesc& n : program.named_data) {
    if (n.alignment == 0 || (n.alignment & (n.alignment - 1)) != 0 || n.alignment > (1u << 30))
      return InvalidArgument("named data '", n.keys.empty() ? "" : n.keys[0], "' asks for alignment ", n.alignment, ", not a power of two");
    if (n.first_constant && program.constants.empty()) return InvalidArgument("named data shares the first constant, but there are no constants");
    plan.named_segments.push_back(n.first_constant ? 0 : plan.Add(Whole(n.payload), n.alignment));
  }
  if (program.hashes) {
    SegmentPlan hashes;
    hashes.size = (kFirstSegmentHash + plan.segments.size()) * kHashBytes;
    plan.hashes_segment = plan.Add(std::move(hashes), kHashBytes);
  }
  return plan;
}

// ---- what payloads are written to ----

// Counts what passes through and refuses more than promised.
class CountingSink final : public ByteSink {
 public:
  CountingSink(ByteSink& out, uint64_t limit) : out_(out), left_(limit) {}
  Status Write(const void* data, size_t size) override {
    if (size > left_) return Internal("a payload delivers more bytes than it promised");
    left_ -= size;
    return out_.Write(data, size);
  }
  uint64_t left() const { return left_; }

 private:
  ByteSink& out_;
  uint64_t left_;
};

// ---- the program's flatbuffer ----

class Builder {
 public:
  Builder(const ProgramDesc& desc, const FilePlan& plan) : desc_(desc), plan_(plan) {}

  Result<FlatBufferBuilder> Build() {
    std::vector<Offset<ExecutionPlan>> methods;
    for (const MethodDesc& m : desc_.methods) {
      auto method = Method(m);
      if (!method.ok()) return std::move(method).status();
      methods.push_back(*method);
    }
    std::vector<Offset<BackendDelegateInlineData>> inline_blobs;
    if (desc_.inline_delegate_blobs) {
      for (const Payload& p : desc_.delegate_blobs) {
        DT_ASSIGN_OR_RETURN(const auto blob, InlineBlob(p));
        inline_blobs.push_back(blob);
      }
    }
    std::vector<Offset<DataSegment>> segments;
    for (const SegmentPlan& s : plan_.segments) segments.push_back(CreateDataSegment(b_, s.offset, s.size));
    std::vector<Offset<dovetail::pte::NamedData>> named;
    for (size_t i = 0; i < desc_.named_data.size(); ++i)
      for (const std::string& key : desc_.named_data[i].keys) named.push_back(CreateNamedData(b_, b_.CreateString(key), plan_.named_segments[i]));
    if (plan_.hashes_segment) named.push_back(CreateNamedData(b_, b_.CreateString(kHashesKey), *plan_.hashes_segment));
    const auto constants = CreateSubsegmentOffsets(b_, 0, b_.CreateVector(plan_.constant_offsets));
    std::vector<Offset<SubsegmentOffsets>> states;
    if (plan_.mutable_offsets.size() > 1)
      states.push_back(CreateSubsegmentOffsets(b_, plan_.mutable_segment, b_.CreateVector(plan_.mutable_offsets)));
    const auto methods_vector = b_.CreateVector(methods);
    const auto no_buffers = b_.CreateVector(std::vector<Offset<Buffer>>{});
    const auto inline_vector = b_.CreateVector(inline_blobs);
    const auto segments_vector = b_.CreateVector(segments);
    const Offset<flatbuffers::Vector<Offset<SubsegmentOffsets>>> states_vector =
        states.empty() ? Offset<flatbuffers::Vector<Offset<SubsegmentOffsets>>>(0) : b_.CreateVector(states);
    const auto named_vector = b_.CreateVector(named);
    FinishProgramBuffer(b_, CreateProgram(b_, 0, methods_vector, no_buffers, inline_vector, segments_vector, constants, states_vector, named_vector));
    return std::move(b_);
  }

 private:
  template <class T>
  auto Ints(const std::vector<T>& v) { return b_.CreateVector(v); }

  struct Union {
    KernelTypes type;
    Offset<void> value;
  };

  Result<Union> Value(const ValueDesc& value) {
    if (std::holds_alternative<NoneDesc>(value)) return Union{KernelTypes::Null, CreateNull(b_).Union()};
    if (auto* v = std::get_if<int64_t>(&value)) return Union{KernelTypes::Int, CreateInt(b_, *v).Union()};
    if (auto* v = std::get_if<bool>(&value)) return Union{KernelTypes::Bool, CreateBool(b_, *v).Union()};
    if (auto* v = std::get_if<double>(&value)) return Union{KernelTypes::Double, CreateDouble(b_, *v).Union()};
    if (auto* v = std::get_if<std::string>(&value)) return Union{KernelTypes::String, CreateString(b_, b_.CreateString(*v)).Union()};
    if (auto* v = std::get_if<IntListDesc>(&value)) return Union{KernelTypes::IntList, CreateIntList(b_, Ints(v->values)).Union()};
    if (auto* v = std::get_if<DoubleListDesc>(&value)) return Union{KernelTypes::DoubleList, CreateDoubleList(b_, b_.CreateVector(v->items)).Union()};
    if (auto* v = std::get_if<BoolListDesc>(&value)) return Union{KernelTypes::BoolList, CreateBoolList(b_, b_.CreateVector(v->items)).Union()};
    if (auto* v = std::get_if<TensorListDesc>(&value)) return Union{KernelTypes::TensorList, CreateTensorList(b_, Ints(v->values)).Union()};
    if (auto* v = std::get_if<OptionalTensorListDesc>(&value))
      return Union{KernelTypes::OptionalTensorList, CreateOptionalTensorList(b_, Ints(v->values)).Union()};
    DT_ASSIGN_OR_RETURN(Offset<Tensor> tensor, TensorTable(std::get<TensorDesc>(value)));
    return Union{KernelTypes::Tensor, tensor.Union()};
  }

  Result<Offset<Tensor>> TensorTable(const TensorDesc& t) {
    ScalarType type;
    if (!ToScalarType(t.dtype, &type)) return Unsupported("a .pte cannot hold a tensor of type ", Name(t.dtype));
    if (t.data_buffer_idx > (t.allocation ? desc_.mutable_initial : desc_.constants).size())
      return InvalidArgument("data_buffer_idx ", t.data_buffer_idx, " has no payload");
    std::vector<uint8_t> order = t.dim_order;
    if (order.empty()) {
      order.resize(t.sizes.size());
      std::iota(order.begin(), order.end(), uint8_t{0});
    }
    const auto sizes = b_.CreateVector(t.sizes);
    const auto dim_order = b_.CreateVector(order);
    Offset<AllocationDetails> allocation;
    if (t.allocation)
      allocation = CreateAllocationDetails(b_, t.allocation->memory_id, static_cast<uint32_t>(t.allocation->offset),
                                           static_cast<uint32_t>(t.allocation->offset >> 32));
    Offset<ExtraTensorInfo> extra;
    if (!t.fully_qualified_name.empty()) extra = CreateExtraTensorInfo(b_, 0, b_.CreateString(t.fully_qualified_name));
    return CreateTensor(b_, type, 0, sizes, dim_order, false, t.data_buffer_idx, allocation, 0,
                        t.dynamic_bound ? TensorShapeDynamism::DYNAMIC_BOUND : TensorShapeDynamism::STATIC, extra);
  }

  Offset<Instruction> InstructionTable(const InstructionDesc& instruction) {
    if (auto* c = std::get_if<KernelCallDesc>(&instruction))
      return CreateInstruction(b_, InstructionArguments::KernelCall, CreateKernelCall(b_, c->op_index, Ints(c->args)).Union());
    if (auto* c = std::get_if<DelegateCallDesc>(&instruction))
      return CreateInstruction(b_, InstructionArguments::DelegateCall, CreateDelegateCall(b_, c->delegate_index, Ints(c->args)).Union());
    if (auto* c = std::get_if<MoveCallDesc>(&instruction))
      return CreateInstruction(b_, InstructionArguments::MoveCall, CreateMoveCall(b_, c->from, c->to).Union());
    if (auto* c = std::get_if<JumpFalseDesc>(&instruction))
      return CreateInstruction(b_, InstructionArguments::JumpFalseCall, CreateJumpFalseCall(b_, c->condition, c->destination).Union());
    return CreateInstruction(b_, InstructionArguments::FreeCall, CreateFreeCall(b_, std::get<FreeCallDesc>(instruction).value).Union());
  }

  Result<Offset<ExecutionPlan>> Method(const MethodDesc& m) {
    std::vector<Offset<EValue>> values;
    for (size_t i = 0; i < m.values.size(); ++i) {
      auto value = Value(m.values[i]);
      if (!value.ok()) return std::move(value).status().While(StrCat("writing value ", i, " of method '", m.name, "'"));
      values.push_back(CreateEValue(b_, value->type, value->value));
    }
    std::vector<Offset<Instruction>> instructions;
    for (const InstructionDesc& i : m.instructions) instructions.push_back(InstructionTable(i));
    std::vector<Offset<Operator>> operators;
    for (const OperatorDesc& o : m.operators) {
      const auto name = b_.CreateString(o.name);
      operators.push_back(CreateOperator(b_, name, b_.CreateString(o.overload)));
    }
    std::vector<Offset<BackendDelegate>> delegates;
    for (const DelegateDesc& d : m.delegates) {
      if (d.blob_index >= desc_.delegate_blobs.size())
        return InvalidArgument("method '", m.name, "': a delegate's blob_index is ", d.blob_index, " of ", desc_.delegate_blobs.size());
      std::vector<Offset<CompileSpec>> specs;
      for (const CompileSpecDesc& s : d.compile_specs) {
        const auto key = b_.CreateString(s.key);
        specs.push_back(CreateCompileSpec(b_, key, b_.CreateVector(s.value)));
      }
      const auto id = b_.CreateString(d.id);
      const auto processed = desc_.inline_delegate_blobs
                                 ? CreateBackendDelegateDataReference(b_, DataLocation::INLINE, d.blob_index)
                                 : CreateBackendDelegateDataReference(b_, DataLocation::SEGMENT, plan_.first_delegate_segment + d.blob_index);
      delegates.push_back(CreateBackendDelegate(b_, id, processed, b_.CreateVector(specs)));
    }
    const auto nothing = b_.CreateVector(std::vector<int32_t>{});
    const Offset<Chain> chain = CreateChain(b_, nothing, nothing, b_.CreateVector(instructions));
    const auto name = b_.CreateString(m.name);
    // ExecuTorch's own files always have this table; the text is opaque to the runtime.
    const auto text = b_.CreateString("");
    const auto container = CreateContainerMetadata(b_, text, text);
    const auto values_vector = b_.CreateVector(values);
    const auto inputs = b_.CreateVector(m.inputs);
    const auto outputs = b_.CreateVector(m.outputs);
    const auto chains = b_.CreateVector(&chain, 1);
    const auto operators_vector = b_.CreateVector(operators);
    const auto delegates_vector = b_.CreateVector(delegates);
    const auto memory = b_.CreateVector(m.non_const_buffer_sizes);
    return CreateExecutionPlan(b_, name, container, values_vector, inputs, outputs, chains, operators_vector, delegates_vector, memory);
  }

  Result<Offset<BackendDelegateInlineData>> InlineBlob(const Payload& payload) {
    // The flatbuffers library does not grow past 2 GiB and aborts instead.
    if (payload.size > (uint64_t{1} << 30)) return Unsupported("a delegate blob of ", payload.size, " bytes is too large to be put inline");
    VectorSink bytes;
    CountingSink sink(bytes, payload.size);
    if (payload.write) DT_RETURN_IF_ERROR(payload.write(sink));
    if (sink.left() != 0) return Internal("a payload delivers ", sink.left(), " bytes fewer than it promised");
    b_.ForceVectorAlignment(bytes.bytes.size(), 1, 16);
    const auto data = b_.CreateVector(reinterpret_cast<const uint8_t*>(bytes.bytes.data()), bytes.bytes.size());
    return CreateBackendDelegateInlineData(b_, data);
  }

  const ProgramDesc& desc_;
  const FilePlan& plan_;
  FlatBufferBuilder b_;
};

// ---- the file ----

constexpr uint64_t kHeaderSize = 32;  // also a multiple of every alignment inside the flatbuffer, which it shifts

Result<uint64_t> WriteTo(const ProgramDesc& program, ByteSink& out, const std::string& name) {
  DT_ASSIGN_OR_RETURN(FilePlan plan, PlanFile(program));
  DT_ASSIGN_OR_RETURN(FlatBufferBuilder fbb, Builder(program, plan).Build());
  const uint8_t* table = fbb.GetBufferPointer();
  DT_RETURN_IF_ERROR(VerifyProgram(*GetProgram(table), fbb.GetSize(), plan.size, name));

  const uint64_t program_size = fbb.GetSize() + kHeaderSize;
  const uint64_t base = Align(program_size, kSegmentAlignment);
  struct {
    uint32_t root;
    char identifier[4], magic[4];
    uint32_t length;
    uint64_t program_size, segment_base, segment_size;
  } head = {};
  static_assert(sizeof head == 8 + kHeaderSize);
  std::memcpy(&head.root, table, 4);
  head.root += kHeaderSize;  // the root offset skips the header put in front of the tables
  std::memcpy(head.identifier, table + 4, 4);
  std::memcpy(head.magic, "eh00", 4);
  head.length = kHeaderSize;
  head.program_size = program_size;
  head.segment_base = base;
  head.segment_size = plan.size;
  HashingSink hashing(out);
  DT_RETURN_IF_ERROR(hashing.Write(&head, sizeof head));
  DT_RETURN_IF_ERROR(hashing.Write(table + 8, fbb.GetSize() - 8));

  std::vector<uint64_t> hashes = {0, hashing.Take()};
  uint64_t at = program_size;
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const SegmentPlan& segment = plan.segments[s];
    DT_RETURN_IF_ERROR(WriteZeros(out, base + segment.offset - at));
    at = base + segment.offset;
    if (s == plan.hashes_segment) {
      hashes[0] = HashPart(std::as_bytes(std::span(hashes).subspan(1)));
      DT_RETURN_IF_ERROR(out.Write(hashes.data(), segment.size));
      at += segment.size;
      continue;
    }
    for (const Placed& item : segment.items) {
      const uint64_t target = base + segment.offset + item.offset;
      DT_RETURN_IF_ERROR(WriteZeros(hashing, target - at));
      CountingSink sink(hashing, item.payload->size);
      if (item.payload->write) DT_RETURN_IF_ERROR(item.payload->write(sink));
      if (sink.left() != 0) return Internal("a payload delivers ", sink.left(), " bytes fewer than it promised");
      at = target + item.payload->size;
    }
    hashes.push_back(hashing.Take());
  }
  DT_RETURN_IF_ERROR(WriteZeros(out, base + plan.size - at));
  return base + plan.size;
}

static_assert(std::endian::native == std::endian::little, "the format is little endian and is written as it is in memory");

class FileSink final : public ByteSink {
 public:
  explicit FileSink(AtomicFile& file) : file_(file) {}
  Status Write(const void* data, size_t size) override { return file_.Write(data, size); }

 private:
  AtomicFile& file_;
};

}  // namespace

Result<uint64_t> WritePte(const ProgramDesc& program, const std::string& path) {
  DT_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  FileSink sink(*file);
  DT_ASSIGN_OR_RETURN(uint64_t size, WriteTo(program, sink, path));
  DT_RETURN_IF_ERROR(file->Commit());
  return size;
}

Result<std::vector<std::byte>> SerializePte(const ProgramDesc& program) {
  VectorSink sink;
  DT_ASSIGN_OR_RETURN(uint64_t size, WriteTo(program, sink, "program"));
  (void)size;
  return std::move(sink.bytes);
}

}  // namespace dovetail::pte
