// The graphs of quantized operators as whole programs: one delegate call and nothing else, here and, by tests/test_pte_executorch.py, in the
// stock ExecuTorch runtime, for which Write leaves each program with its inputs and results in $TEST_TMPDIR.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "compile/compile.h"
#include "compile/emit.h"
#include "compile/lower_states.h"
#include "dovetail/program.h"
#include "format/pte_writer.h"
#include "ir/verifier.h"
#include "xnnpack/quantized_cases.h"

namespace dovetail {
namespace {

struct Compiled {
  Module before, module;
  std::vector<std::byte> bytes;
};

Status Compile(const Case& c, Compiled* r) {
  r->before = ParseText(Whole(c.text));
  r->module = ParseText(Whole(c.text));
  FillConstants(r->before, c.positive);
  FillConstants(r->module, c.positive);
  DT_RETURN_IF_ERROR(Verify(r->module));
  const Backend* backends[] = {&XnnpackBackend()};
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const PartitionReport report, Partition(r->module, backends));
  DT_RETURN_IF_ERROR(Verify(r->module));
  DT_RETURN_IF_ERROR(LowerStates(r->module));
  EmitStats stats;
  DT_ASSIGN_OR_RETURN(const pte::ProgramDesc desc, Emit(r->module, {backends, true}, stats));
  DT_ASSIGN_OR_RETURN(r->bytes, pte::SerializePte(desc));
  return OkStatus();
}

// With all symbols at 5.
std::vector<OwnedTensor> Inputs(const Graph& graph, bool positive) {
  std::vector<OwnedTensor> inputs;
  for (ValueId v : graph.inputs) {
    TensorType type = graph.type(v);
    for (size_t i = 0; i < type.rank(); ++i) type.shape[i] = *type.shape[i].Evaluate([](std::string_view) -> std::optional<int64_t> { return 5; });
    inputs.push_back(OwnedTensor::Make(type));
    Fill(inputs.back().view(), static_cast<uint32_t>(inputs.size()), positive);
  }
  return inputs;
}

// Cases without heavy operators are not worth a delegate call.
bool IsWholeProgram(const Case& c) { return c.text.find("quantized_") != std::string::npos; }

TEST(QuantizedPrograms, AreOneDelegateCall) {
  for (const Case& c : QuantizedCases()) {
    if (!IsWholeProgram(c)) continue;
    SCOPED_TRACE(c.name);
    Compiled compiled;
    const Status status = Compile(c, &compiled);
    ASSERT_TRUE(status.ok()) << status.ToString();
    size_t delegates = 0;
    for (NodeId id : compiled.module.graphs[0]->order) {
      const OpId op = compiled.module.graphs[0]->node(id).op;
      if (op == OpId::kDelegate) ++delegates;
      else EXPECT_EQ(op, OpId::kConst) << GetOp(op).name;
    }
    EXPECT_EQ(delegates, 1u);
    auto program = Program::FromBytes(compiled.bytes, c.name + ".pte");
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    static const DelegateEntry delegate[] = {kXnnpackDelegate};
    InstanceOptions options;
    options.delegates = delegate;
    options.threads = 1;
    auto instance = (*program)->CreateInstance(options);
    ASSERT_TRUE(instance.ok()) << instance.status().ToString();
    auto method = (*instance)->LoadMethod("f");
    ASSERT_TRUE(method.ok()) << method.status().ToString();
    const Graph& graph = *compiled.before.graphs[0];
    const std::vector<OwnedTensor> inputs = Inputs(graph, c.positive);
    std::vector<TensorView> views;
    for (const OwnedTensor& t : inputs) views.push_back(t.view());
    const Status ran = (*method)->Execute(views);
    ASSERT_TRUE(ran.ok()) << ran.ToString();
    StateStore states;
    const auto want = Interpret(compiled.before, graph, inputs, states);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    for (size_t i = 0; i < want->size(); ++i) EXPECT_EQ(DifferenceFrom((*want)[i].view(), (*method)->outputs()[i], c), "");
  }
}

void AppendTensor(const std::string& name, const TensorView& t, std::string* header, std::string* data) {
  if (!header->empty()) *header += ",";
  const size_t begin = data->size();
  data->append(reinterpret_cast<const char*>(t.data), t.nbytes());
  std::string shape;
  for (int i = 0; i < t.rank; ++i) shape += StrCat(i ? "," : "", t.sizes[static_cast<size_t>(i)]);
  *header += StrCat("\"", name, "\":{\"dtype\":\"", t.dtype == DType::kI8 ? "I8" : "F32", "\",\"shape\":[", shape, "],\"data_offsets\":[", begin, ",",
                    data->size(), "]}");
}

TEST(QuantizedPrograms, Write) {
  const char* folder = std::getenv("TEST_TMPDIR");
  if (!folder) GTEST_SKIP() << "no TEST_TMPDIR to write to";
  for (const Case& c : QuantizedCases()) {
    if (!IsWholeProgram(c)) continue;
    Compiled compiled;
    const Status status = Compile(c, &compiled);
    ASSERT_TRUE(status.ok()) << c.name << ": " << status.ToString();
    const Graph& graph = *compiled.before.graphs[0];
    const std::vector<OwnedTensor> inputs = Inputs(graph, c.positive);
    StateStore states;
    const auto want = Interpret(compiled.before, graph, inputs, states);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    std::string header, data;
    for (size_t i = 0; i < inputs.size(); ++i) AppendTensor(StrCat("input", i), inputs[i].view(), &header, &data);
    for (size_t i = 0; i < want->size(); ++i) AppendTensor(StrCat("output", i), (*want)[i].view(), &header, &data);
    header = StrCat("{", header, "}");
    const uint64_t length = header.size();
    const std::string path = (std::filesystem::path(folder) / ("quantized_" + c.name)).string();
    std::ofstream program(path + ".pte", std::ios::binary);
    program.write(reinterpret_cast<const char*>(compiled.bytes.data()), static_cast<std::streamsize>(compiled.bytes.size()));
    std::ofstream tensors(path + ".safetensors", std::ios::binary);
    tensors.write(reinterpret_cast<const char*>(&length), sizeof length);
    tensors << header << data;
  }
}

}  // namespace
}  // namespace dovetail
