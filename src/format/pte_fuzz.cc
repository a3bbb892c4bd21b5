// Hostile .pte files: ReadPte either fails or gives a view on which everything that a runtime reads is there and in range.
#include "base/check.h"
#include "format/format_samples.h"
#include "format/pte_reader.h"
#include "format/scalar_type.h"

namespace dovetail {
namespace {

volatile unsigned sum;  // so that the reads below are made

void Touch(std::span<const std::byte> bytes) {
  unsigned s = 0;
  for (std::byte b : bytes) s += static_cast<unsigned>(b);
  sum = s;
}
void Touch(const flatbuffers::String* text) {
  if (text) Touch(std::as_bytes(std::span(text->data(), text->size())));
}

void WalkTensor(const PteView& view, const pte::ExecutionPlan& plan, const pte::Tensor& t) {
  DT_CHECK(FromScalarType(t.scalar_type()) != DType::kNone);
  for (int32_t size : TensorSizes(t)) DT_CHECK(size >= 0);
  const uint64_t bytes = TensorBytes(t);
  if (IsConstant(t) && !IsExternal(t)) DT_CHECK(view.ConstantData(t).size() == bytes);
  Touch(view.ConstantData(t));
  Touch(view.InitialData(t));
  if (t.allocation_info()) {
    const uint32_t id = t.allocation_info()->memory_id();
    const uint64_t size = static_cast<uint64_t>(plan.non_const_buffer_sizes()->Get(id));
    DT_CHECK(id > 0 && AllocationOffset(*t.allocation_info()) <= size && bytes <= size - AllocationOffset(*t.allocation_info()));
  }
  if (t.extra_tensor_info()) Touch(t.extra_tensor_info()->fully_qualified_name());
}

void WalkValue(const PteView& view, const pte::ExecutionPlan& plan, const pte::EValue& value) {
  const auto kind = [&](int64_t i) { return plan.values()->Get(static_cast<uint32_t>(i))->val_type(); };
  if (const auto* t = value.val_as_Tensor()) WalkTensor(view, plan, *t);
  if (const auto* s = value.val_as_String()) Touch(s->string_val());
  if (const auto* l = value.val_as_IntList())
    for (int64_t i : *l->items()) DT_CHECK(kind(i) == pte::KernelTypes::Int);
  if (const auto* l = value.val_as_DoubleList()) Touch(std::as_bytes(std::span(l->items()->data(), l->items()->size())));
  if (const auto* l = value.val_as_TensorList())
    for (int32_t i : *l->items()) DT_CHECK(kind(i) == pte::KernelTypes::Tensor);
  if (const auto* l = value.val_as_OptionalTensorList())
    for (int32_t i : *l->items()) DT_CHECK(i == -1 || kind(i) == pte::KernelTypes::Tensor || kind(i) == pte::KernelTypes::Null);
}

void WalkInstruction(const pte::ExecutionPlan& plan, const pte::Instruction& instruction, uint32_t chain_size) {
  const auto arguments = [&](const flatbuffers::Vector<int32_t>* args) {
    for (int32_t i : *args) DT_CHECK(plan.values()->Get(static_cast<uint32_t>(i))->val());
  };
  if (const auto* call = instruction.instr_args_as_KernelCall()) {
    Touch(plan.operators()->Get(static_cast<uint32_t>(call->op_index()))->name());
    arguments(call->args());
  } else if (const auto* delegate = instruction.instr_args_as_DelegateCall()) {
    Touch(plan.delegates()->Get(static_cast<uint32_t>(delegate->delegate_index()))->id());
    arguments(delegate->args());
  } else if (const auto* move = instruction.instr_args_as_MoveCall()) {
    DT_CHECK(plan.values()->Get(static_cast<uint32_t>(move->move_from()))->val_type() ==
             plan.values()->Get(static_cast<uint32_t>(move->move_to()))->val_type());
  } else if (const auto* jump = instruction.instr_args_as_JumpFalseCall()) {
    DT_CHECK(plan.values()->Get(static_cast<uint32_t>(jump->cond_value_index()))->val());
    DT_CHECK(jump->destination_instruction() >= 0 && static_cast<uint32_t>(jump->destination_instruction()) <= chain_size);
  } else {
    DT_CHECK(instruction.instr_args_as_FreeCall());
    DT_CHECK(plan.values()->Get(static_cast<uint32_t>(instruction.instr_args_as_FreeCall()->value_index()))->val_as_Tensor());
  }
}

}  // namespace
}  // namespace dovetail

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  auto view = ReadPte(std::as_bytes(std::span(data, size)), "fuzz");
  if (!view.ok()) return 0;
  // Hostile tables may share their contents, which makes reading it all for each of them quadratic.
  uint64_t left = 64 * uint64_t{size} + 4096;
  for (const pte::ExecutionPlan* plan : *view->program().execution_plan()) {
    DT_CHECK(view->FindMethod(plan->name()->string_view()) == plan);
    for (const pte::EValue* value : *plan->values()) {
      const auto* t = value->val_as_Tensor();
      const uint64_t bytes = t && !IsExternal(*t) && t->data_buffer_idx() ? TensorBytes(*t) : 0;
      if (bytes > left) continue;
      left -= bytes;
      WalkValue(*view, *plan, *value);
    }
    for (auto* indices : {plan->inputs(), plan->outputs()})
      for (int32_t i : *indices) DT_CHECK(plan->values()->Get(static_cast<uint32_t>(i))->val());
    for (const pte::Chain* chain : *plan->chains())
      for (const pte::Instruction* i : *chain->instructions()) WalkInstruction(*plan, *i, chain->instructions()->size());
    if (!plan->delegates()) continue;
    for (const pte::BackendDelegate* delegate : *plan->delegates()) {
      const auto blob = view->DelegateData(*delegate);
      if (blob.size() > left) continue;
      left -= blob.size();
      Touch(blob);
      if (delegate->id()->string_view() == kXnnpackDelegateId) (void)ReadXnnpackBlob(blob, "fuzz");
    }
  }
  if (view->program().named_data())
    for (const pte::NamedData* n : *view->program().named_data()) DT_CHECK(view->FindNamedData(n->key()->string_view()));
  return 0;
}

std::vector<std::vector<uint8_t>> FuzzSeeds() {
  using namespace dovetail;
  std::vector<std::vector<uint8_t>> seeds;
  pte::ProgramDesc inlined = samples::FullyConnected(false);
  inlined.inline_delegate_blobs = true;
  for (const pte::ProgramDesc& p : {samples::Add(), samples::State(), samples::FullyConnected(true), samples::FullyConnected(false),
                                    samples::FullyConnected(true, true), inlined}) {
    auto bytes = pte::SerializePte(p);
    DT_CHECK(bytes.ok());
    seeds.emplace_back();
    for (std::byte b : *bytes) seeds.back().push_back(static_cast<uint8_t>(b));
  }
  return seeds;
}
