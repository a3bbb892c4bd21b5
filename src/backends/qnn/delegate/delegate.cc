#include "backends/qnn/delegate/delegate.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "backends/qnn/api/tensor.h"
#include "backends/qnn/delegate/contexts.h"
#include "format/qnn_blob.h"

namespace dovetail {
namespace {

using qnn::BinaryGraph;
using qnn::BinaryTensor;

constexpr int kNotOne = -1;

// The number behind `prefix` in a name, where an underscore follows it.
int NumberAfter(std::string_view name, std::string_view prefix) {
  const size_t at = name.find(prefix);
  if (at == std::string_view::npos) return kNotOne;
  int number = kNotOne;
  const char* begin = name.data() + at + prefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), number);
  return error == std::errc() && number >= 0 && end != name.data() + name.size() && *end == '_' ? number : kNotOne;
}
int StateNumber(const BinaryTensor& t) { return NumberAfter(t.name, "mutbuf_"); }

// One side of a graph: its tensors as QNN takes them, and which of them each argument is.
struct Side {
  std::vector<BinaryTensor> described;
  std::vector<qnn::abi::Tensor> tensors;
  std::vector<size_t> of_argument;  // index of tensors

  size_t bytes(size_t argument) const { return tensors[of_argument[argument]].v1.buffer.size; }
};

Result<Side> MakeSide(const std::vector<BinaryTensor>& tensors, bool output) {
  Side side;
  side.described = tensors;
  std::vector<std::pair<int, size_t>> order;
  bool numbered = !output;
  for (size_t i = 0; i < tensors.size(); ++i) numbered &= tensors[i].name.starts_with("input_") && NumberAfter(tensors[i].name, "input_") >= 0;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (StateNumber(tensors[i]) < 0) order.emplace_back(numbered ? NumberAfter(tensors[i].name, "input_") : 0, i);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [number, i] : order) side.of_argument.push_back(i);
  for (BinaryTensor& t : side.described) {
    const DType dtype = DTypeFromName(qnn::DataTypeName(t.dtype));
    if (dtype == DType::kNone) return Unsupported(kQnnDelegateId, ": '", t.name, "' is of ", qnn::DataTypeName(t.dtype), ", which programs have no type for");
    if (t.numel() > UINT32_MAX / ByteSize(dtype)) return Unsupported(kQnnDelegateId, ": '", t.name, "' takes more than 4 GiB");
    const auto kind = output ? qnn::abi::TensorKind::kAppRead : qnn::abi::TensorKind::kAppWrite;
    qnn::abi::Tensor tensor = qnn::MakeTensor(t.name.c_str(), kind, t.dtype, t.quantization, t.dims);
    tensor.v1.id = t.id;
    tensor.v1.buffer.size = static_cast<uint32_t>(t.numel() * ByteSize(dtype));
    side.tensors.push_back(tensor);
  }
  return side;
}

class QnnDelegate final : public Delegate {
 public:
  static Result<std::unique_ptr<Delegate>> Create(const DelegateInitContext& ctx);
  Status Execute(std::span<const TensorView> inputs, std::span<TensorView> outputs) override;

 private:
  Status CheckArguments(const DelegateInitContext& ctx) const;
  Status CheckArgument(const TensorView& t, const Side& side, size_t argument, std::string_view what) const;
  Status MakeStates();

  std::unique_ptr<DelegateShared> own_contexts_;  // if the Program shares none
  const qnn::Library* library_ = nullptr;
  qnn::abi::Handle graph_ = nullptr;
  std::string call_;  // what Execute does, for messages
  Side inputs_, outputs_;
  std::map<int, std::vector<std::byte>> states_;  // by the number in their names
};

qnn::Contexts* ContextsOf(const DelegateInitContext& ctx, std::unique_ptr<DelegateShared>* own) {
  std::unique_ptr<DelegateShared>& holder = ctx.program_shared ? *ctx.program_shared : *own;
  if (!holder) holder = std::make_unique<qnn::Contexts>();
  return static_cast<qnn::Contexts*>(holder.get());  // the slot is this backend's own
}

Result<std::unique_ptr<Delegate>> QnnDelegate::Create(const DelegateInitContext& ctx) {
  auto self = std::make_unique<QnnDelegate>();
  qnn::Contexts* contexts = ContextsOf(ctx, &self->own_contexts_);
  DT_ASSIGN_OR_RETURN(qnn::OpenedBinary* opened, contexts->Open(ctx));
  DT_ASSIGN_OR_RETURN(const BinaryGraph* graph, qnn::GraphOf(opened->info, ctx.method));
  DT_ASSIGN_OR_RETURN(self->inputs_, MakeSide(graph->inputs, false));
  DT_ASSIGN_OR_RETURN(self->outputs_, MakeSide(graph->outputs, true));
  DT_RETURN_IF_ERROR(self->CheckArguments(ctx));
  DT_RETURN_IF_ERROR(self->MakeStates());
  self->library_ = opened->library;
  self->call_ = StrCat("QnnGraph_execute of '", graph->name, "'");
  const std::lock_guard lock(opened->library->mutex());
  DT_ASSIGN_OR_RETURN(qnn::Context* context, contexts->ContextOf(opened));
  DT_ASSIGN_OR_RETURN(self->graph_, context->Graph(graph->name));
  if (ctx.release) ctx.release(opened->binary);
  return std::unique_ptr<Delegate>(std::move(self));
}

Status QnnDelegate::CheckArgument(const TensorView& t, const Side& side, size_t argument, std::string_view what) const {
  const BinaryTensor& expected = side.described[side.of_argument[argument]];
  if (Name(t.dtype) != qnn::DataTypeName(expected.dtype))
    return Corrupt(kQnnDelegateId, ": ", what, " ", argument, " is ", Name(t.dtype), ", but '", expected.name, "' of the graph is ",
                   qnn::DataTypeName(expected.dtype));
  if (static_cast<uint64_t>(t.numel()) != expected.numel())
    return Corrupt(kQnnDelegateId, ": ", what, " ", argument, " has ", t.numel(), " elements, but '", expected.name, "' of the graph has ", expected.numel());
  return OkStatus();
}

Status QnnDelegate::CheckArguments(const DelegateInitContext& ctx) const {
  if (ctx.arguments.empty()) return OkStatus();
  const size_t inputs = inputs_.of_argument.size(), outputs = outputs_.of_argument.size();
  if (ctx.num_inputs != inputs || ctx.arguments.size() != inputs + outputs)
    return Corrupt(kQnnDelegateId, ": the graph has ", inputs, " inputs and ", outputs, " outputs, but the call has ", ctx.arguments.size(), " arguments");
  for (size_t i = 0; i < inputs; ++i) DT_RETURN_IF_ERROR(CheckArgument(ctx.arguments[i], inputs_, i, "input"));
  for (size_t i = 0; i < outputs; ++i) DT_RETURN_IF_ERROR(CheckArgument(ctx.arguments[inputs + i], outputs_, i, "output"));
  return OkStatus();
}

Status QnnDelegate::MakeStates() {
  for (Side* side : {&inputs_, &outputs_}) {
    for (size_t i = 0; i < side->tensors.size(); ++i) {
      const int number = StateNumber(side->described[i]);
      if (number < 0) continue;
      qnn::abi::ClientBuffer& buffer = side->tensors[i].v1.buffer;
      std::vector<std::byte>& memory = states_[number];
      if (memory.empty()) memory.resize(buffer.size);
      if (memory.size() != buffer.size)
        return Corrupt(kQnnDelegateId, ": the state '", side->described[i].name, "' has ", buffer.size, " bytes, and ", memory.size(), " under another name");
      buffer.data = memory.data();
    }
  }
  return OkStatus();
}

Status QnnDelegate::Execute(std::span<const TensorView> inputs, std::span<TensorView> outputs) {
  if (inputs.size() != inputs_.of_argument.size() || outputs.size() != outputs_.of_argument.size())
    return InvalidArgument(kQnnDelegateId, ": the call has ", inputs.size(), " inputs and ", outputs.size(), " outputs, but the graph ",
                           inputs_.of_argument.size(), " and ", outputs_.of_argument.size());
  const std::lock_guard lock(library_->mutex());
  const auto point = [](Side& side, size_t i, const TensorView& t) {
    side.tensors[side.of_argument[i]].v1.buffer.data = t.data;
    return t.nbytes() == side.bytes(i);
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!point(inputs_, i, inputs[i]))
      return InvalidArgument(kQnnDelegateId, ": input ", i, " has ", inputs[i].nbytes(), " bytes in this call, but QNN graphs have fixed shapes, and this one ",
                             "takes ", inputs_.bytes(i));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!point(outputs_, i, outputs[i]))
      return InvalidArgument(kQnnDelegateId, ": output ", i, " has memory for ", outputs[i].nbytes(), " bytes, but the graph gives ", outputs_.bytes(i));
  const uint32_t num_inputs = static_cast<uint32_t>(inputs_.tensors.size()), num_outputs = static_cast<uint32_t>(outputs_.tensors.size());
  return library_->Check(
      library_->functions().graph_execute(graph_, inputs_.tensors.data(), num_inputs, outputs_.tensors.data(), num_outputs, nullptr, nullptr), call_);
}

Result<size_t> NumInputs(const DelegateInitContext& ctx) {
  std::unique_ptr<DelegateShared> own;
  DT_ASSIGN_OR_RETURN(const qnn::OpenedBinary* opened, ContextsOf(ctx, &own)->Open(ctx));
  DT_ASSIGN_OR_RETURN(const BinaryGraph* graph, qnn::GraphOf(opened->info, ctx.method));
  return static_cast<size_t>(std::count_if(graph->inputs.begin(), graph->inputs.end(), [](const BinaryTensor& t) { return StateNumber(t) < 0; }));
}

}  // namespace

const DelegateEntry kQnnDelegate = {kQnnDelegateId, QnnDelegate::Create, NumInputs};

}  // namespace dovetail
