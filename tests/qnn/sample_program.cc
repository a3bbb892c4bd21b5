#include "qnn/sample_program.h"

#include <cstring>

#include "backends/qnn/api/tensor.h"
#include "format/format_samples.h"
#include "format/qnn_blob.h"

namespace dovetail::testing {
namespace {

using namespace qnn::abi;

Tensor MakeTensor(const char* name, TensorKind kind, std::vector<uint32_t>* dims) {
  return qnn::MakeTensor(name, kind, DataType::kUfixed16, ScaleOffset{kSampleScale, -kSampleZeroPoint}, *dims);
}

Status AddGraph(const qnn::Library& library, const qnn::Context& context, const std::string& name) {
  const Functions& f = library.functions();
  Handle graph = nullptr;
  DT_RETURN_IF_ERROR(library.Check(f.graph_create(context.handle(), name.c_str(), nullptr, &graph), "QnnGraph_create"));
  std::vector<uint32_t> dims = {4};
  // x is made first: the order of arguments is that of the names.
  Tensor x = MakeTensor("input_1_x", TensorKind::kAppWrite, &dims), total = MakeTensor("input_0_total", TensorKind::kAppWrite, &dims);
  Tensor sum = MakeTensor("output_0_total", TensorKind::kAppRead, &dims);
  for (Tensor* t : {&x, &total, &sum}) DT_RETURN_IF_ERROR(library.Check(f.tensor_create_graph_tensor(graph, t), "QnnTensor_createGraphTensor"));
  Tensor inputs[] = {total, x};
  OpConfig op;
  std::memset(&op, 0, sizeof op);
  op.version = 1;
  op.v1 = {"sum", "qti.aisw", "ElementWiseAdd", 0, nullptr, 2, inputs, 1, &sum};
  DT_RETURN_IF_ERROR(library.Check(f.graph_add_node(graph, op), "QnnGraph_addNode"));
  return library.Check(f.graph_finalize(graph, nullptr, nullptr), "QnnGraph_finalize");
}

}  // namespace

Result<std::vector<std::byte>> SampleBinary(const qnn::Library& library, const std::string& soc, const std::vector<std::string>& graphs) {
  DT_ASSIGN_OR_RETURN(const qnn::Soc* found, qnn::FindSoc(soc));
  DT_ASSIGN_OR_RETURN(std::shared_ptr<qnn::Device> device, qnn::Device::Create(library, *found));
  DT_ASSIGN_OR_RETURN(std::unique_ptr<qnn::Context> context, qnn::Context::Create(device, false));
  for (const std::string& graph : graphs) DT_RETURN_IF_ERROR(AddGraph(library, *context, graph));
  return context->Binary();
}

pte::ProgramDesc SampleProgram(const std::vector<std::byte>& blob, const std::vector<std::byte>& spec, const std::vector<std::string>& methods) {
  pte::ProgramDesc p;
  p.mutable_initial = {samples::Bytes<uint16_t>({100, 101, 102, 103})};
  p.delegate_blobs = {Payload::Owned(blob)};
  for (const std::string& name : methods) {
    pte::MethodDesc m;
    m.name = name;
    pte::TensorDesc state = samples::Planned({4}, 0, DType::kU16);
    state.data_buffer_idx = 1;
    state.fully_qualified_name = "total";
    m.values = {state, samples::Planned({4}, 16, DType::kU16)};
    m.inputs = {1};
    m.outputs = {0};
    pte::DelegateDesc delegate;
    delegate.id = kQnnDelegateId;
    const auto* bytes = reinterpret_cast<const uint8_t*>(spec.data());
    if (!spec.empty()) delegate.compile_specs = {{kQnnCompileSpecKey, {bytes, bytes + spec.size()}}};
    m.delegates = {delegate};
    m.instructions = {pte::DelegateCallDesc{0, {0, 1, 0}}};
    m.non_const_buffer_sizes = {0, 32};
    p.methods.push_back(std::move(m));
  }
  return p;
}

}  // namespace dovetail::testing
