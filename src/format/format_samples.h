// Small hand-made programs for the tests of this folder and of tests/test_pte_executorch.py.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "format/pte_writer.h"
#include "format/xnnpack_blob.h"

namespace dovetail::samples {

template <class T>
Payload Bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return Payload::Owned(std::move(bytes));
}

inline pte::TensorDesc Planned(std::vector<int32_t> sizes, uint64_t offset, DType dtype = DType::kF32) {
  pte::TensorDesc t{.dtype = dtype, .sizes = std::move(sizes)};
  t.allocation = pte::AllocationDesc{1, offset};
  return t;
}

// out = a + b.
inline pte::ProgramDesc Add() {
  pte::ProgramDesc p;
  pte::MethodDesc m;
  m.values = {pte::TensorDesc{.dtype = DType::kF32, .sizes = {2, 3}}, pte::TensorDesc{.dtype = DType::kF32, .sizes = {2, 3}}, int64_t{1},
              Planned({2, 3}, 0)};
  m.inputs = {0, 1};
  m.outputs = {3};
  m.operators = {{"aten::add", "out"}};
  m.instructions = {pte::KernelCallDesc{0, {0, 1, 2, 3, 3}}};
  m.non_const_buffer_sizes = {0, 32};
  p.methods.push_back(std::move(m));
  return p;
}

// s starts as {10, 20}; each call does out = x * c + s, s = out, with the constant c = {2, 3}.
inline pte::ProgramDesc State() {
  pte::ProgramDesc p;
  p.constants = {Bytes<float>({99}), Bytes<float>({2, 3})};
  p.mutable_initial = {Bytes<float>({10, 20})};
  pte::MethodDesc m;
  pte::TensorDesc constant{.dtype = DType::kF32, .sizes = {2}, .data_buffer_idx = 2, .fully_qualified_name = "c"};
  pte::TensorDesc state = Planned({2}, 0);
  state.data_buffer_idx = 1;
  state.fully_qualified_name = "s";
  m.values = {Planned({2}, 16), constant, state, Planned({2}, 32), Planned({2}, 48), int64_t{1}, false};
  m.inputs = {0};
  m.outputs = {4};
  m.operators = {{"aten::mul", "out"}, {"aten::add", "out"}, {"aten::copy_", ""}};
  m.instructions = {pte::KernelCallDesc{0, {0, 1, 3, 3}}, pte::KernelCallDesc{1, {3, 2, 5, 4, 4}}, pte::KernelCallDesc{2, {2, 4, 6, 2}}};
  m.non_const_buffer_sizes = {0, 64};
  p.methods.push_back(std::move(m));
  return p;
}

// y = x w^T + b by XNNPACK: w = {{1,2,3},{4,5,6}}, b = {10, 20}. The weight is in named data or in the blob, the bias in
// the blob. With `tied`, w is also the program's first constant and stored once.
inline std::vector<uint8_t> FullyConnectedGraph(XnnConstants* constants, bool named, uint32_t batch = 2) {
  flatbuffers::FlatBufferBuilder b;
  auto value = [&](uint32_t id, std::vector<uint32_t> dims, uint32_t constant, uint32_t external, uint32_t flags) {
    const auto d = b.CreateVector(dims);
    const auto t = xn::CreateXNNTensorValue(b, xn::XNNDatatype::xnn_datatype_fp32, static_cast<uint32_t>(dims.size()), d, constant, external, flags, id);
    return xn::CreateXValue(b, xn::XValueUnion::XNNTensorValue, t.Union());
  };
  const flatbuffers::Offset<flatbuffers::String> none;  // absent: ExecuTorch takes any key, the empty one too, for one of named data
  uint64_t at = kXnnNoOffset;
  if (!named) at = constants->Add(Bytes<float>({1, 2, 3, 4, 5, 6}));
  const uint64_t bias_at = constants->Add(Bytes<float>({10, 20}));
  const auto weight = xn::CreateConstantDataOffset(b, at, 24, named ? b.CreateString("w") : none);
  std::vector data = {xn::CreateConstantDataOffset(b, 0, 0, none), weight, xn::CreateConstantDataOffset(b, bias_at, 8, none)};
  std::vector values = {value(0, {batch, 3}, 0, 0, 1), value(1, {2, 3}, 1, kXnnInvalidId, 0), value(2, {2}, 2, kXnnInvalidId, 0),
                        value(3, {batch, 2}, 0, 1, 2)};
  const auto fc = xn::CreateXNNFullyConnected(b, 0, 1, 2, 3, 0);
  std::vector nodes = {xn::CreateXNode(b, xn::XNodeUnion::XNNFullyConnected, fc.Union())};
  const auto version = b.CreateString("0");
  const auto nodes_vector = b.CreateVector(nodes);
  const auto values_vector = b.CreateVector(values);
  const auto inputs = b.CreateVector(std::vector<uint32_t>{0}), outputs = b.CreateVector(std::vector<uint32_t>{3});
  xn::FinishXNNGraphBuffer(b, xn::CreateXNNGraph(b, version, nodes_vector, values_vector, 2, inputs, outputs, b.CreateVector(data)));
  return {b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize()};
}

inline pte::ProgramDesc FullyConnected(bool named, bool tied = false) {
  pte::ProgramDesc p;
  XnnConstants constants;
  const std::vector<uint8_t> graph = FullyConnectedGraph(&constants, named);
  p.delegate_blobs = {WriteXnnpackBlob(graph, std::move(constants))};
  if (tied) p.constants = {Bytes<float>({1, 2, 3, 4, 5, 6})};
  if (named) p.named_data = {{.keys = {"w"}, .payload = tied ? Payload{} : Bytes<float>({1, 2, 3, 4, 5, 6}), .first_constant = tied}};
  pte::MethodDesc m;
  m.values = {Planned({2, 3}, 0), Planned({2, 2}, 32)};
  m.inputs = {0};
  m.outputs = {1};
  m.delegates = {{.id = kXnnpackDelegateId, .blob_index = 0}};
  m.instructions = {pte::DelegateCallDesc{0, {0, 1}}};
  m.non_const_buffer_sizes = {0, 48};
  if (tied) {  // the second output is a row of the same table
    m.values.insert(m.values.end(), {pte::TensorDesc{.dtype = DType::kF32, .sizes = {2, 3}, .data_buffer_idx = 1}, int64_t{1}, Planned({2, 3}, 48)});
    m.outputs = {1, 4};
    m.operators = {{"aten::add", "out"}};
    m.instructions.push_back(pte::KernelCallDesc{0, {0, 2, 3, 4, 4}});
    m.non_const_buffer_sizes = {0, 80};
  }
  p.methods.push_back(std::move(m));
  return p;
}

}  // namespace dovetail::samples
