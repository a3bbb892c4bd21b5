#include "backends/xnnpack/delegate/delegate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backends/xnnpack/delegate/allocator.h"
#include "format/xnnpack_blob.h"
#include "runtime/profiler.h"

namespace dovetail {
namespace {

template <class T>
Payload Bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return Payload::Owned(std::move(bytes));
}

enum class Weights { kF32, kNamed, kInt8Dynamic, kF32Clamped };

// y = x w^T + b for x [4, 3], w = {{1,2,3},{4,5,6}}, b = {10, 20}; the weight is in the blob, in named data, or int8 with rows of x
// quantized at run time. Clamped: by a node of its own, which XNNPACK fuses, to a range that changes nothing, and its maximum with itself taken.
std::vector<std::byte> Linear(Weights weights, int32_t bias_size = 2) {
  flatbuffers::FlatBufferBuilder b;
  XnnConstants constants;
  std::vector<flatbuffers::Offset<xn::ConstantDataOffset>> data = {xn::CreateConstantDataOffset(b, 0, 0)};
  if (weights == Weights::kNamed) data.push_back(xn::CreateConstantDataOffsetDirect(b, kXnnNoOffset, 24, "w"));
  else if (weights != Weights::kInt8Dynamic) data.push_back(xn::CreateConstantDataOffset(b, constants.Add(Bytes<float>({1, 2, 3, 4, 5, 6})), 24));
  else data.push_back(xn::CreateConstantDataOffset(b, constants.Add(Bytes<int8_t>({10, 20, 30, 20, 25, 30})), 6));
  data.push_back(xn::CreateConstantDataOffset(b, constants.Add(Bytes<float>({10, 20})), 8));
  std::vector<flatbuffers::Offset<xn::XValue>> values;
  std::vector<flatbuffers::Offset<xn::XNode>> nodes;
  const auto tensor = [&](xn::XNNDatatype type, std::vector<uint32_t> dims, uint32_t constant, uint32_t external, uint32_t flags,
                          uint32_t id) {
    return xn::CreateXNNTensorValueDirect(b, type, static_cast<uint32_t>(dims.size()), &dims, constant, external, flags, id);
  };
  const auto plain = [&](flatbuffers::Offset<xn::XNNTensorValue> t) {
    values.push_back(xn::CreateXValue(b, xn::XValueUnion::XNNTensorValue, t.Union()));
  };
  const auto f32 = xn::XNNDatatype::xnn_datatype_fp32;
  plain(tensor(f32, {4, 3}, 0, 0, 1, 0));
  plain(tensor(f32, {4, 2}, 0, 1, 2, 1));
  plain(tensor(f32, {static_cast<uint32_t>(bias_size)}, 2, kXnnInvalidId, 0, 2));
  uint32_t input = 0;
  if (weights == Weights::kInt8Dynamic) {
    const std::vector<float> scales = {0.1f, 0.2f};
    const auto w =
        xn::CreateXNNQuantizedTensorValue(b, tensor(xn::XNNDatatype::xnn_datatype_qcint8, {2, 3}, 1, kXnnInvalidId, 0, 3),
                                          xn::XNNQuantParams::PerChannelQuant, xn::CreatePerChannelQuantDirect(b, &scales, 0).Union());
    values.push_back(xn::CreateXValue(b, xn::XValueUnion::XNNQuantizedTensorValue, w.Union()));
    const auto q =
        xn::CreateXNNQuantizedTensorValue(b, tensor(xn::XNNDatatype::xnn_datatype_qdint8, {4, 3}, 0, kXnnInvalidId, 0, 4),
                                          xn::XNNQuantParams::PerTokenDynamicQuant, xn::CreatePerTokenDynamicQuant(b, 1).Union());
    values.push_back(xn::CreateXValue(b, xn::XValueUnion::XNNQuantizedTensorValue, q.Union()));
    nodes.push_back(xn::CreateXNode(b, xn::XNodeUnion::XNNConvert, xn::CreateXNNNode1x1(b, 0, 4, 0).Union()));
    input = 4;
  } else {
    plain(tensor(f32, {2, 3}, 1, kXnnInvalidId, 0, 3));
  }
  if (weights == Weights::kF32Clamped) {
    for (uint32_t id : {5, 6}) plain(tensor(f32, {4, 2}, 0, kXnnInvalidId, 0, id));
    nodes.push_back(xn::CreateXNode(b, xn::XNodeUnion::XNNFullyConnected, xn::CreateXNNFullyConnected(b, 0, 3, 2, 5, 0).Union()));
    const auto range = xn::CreateOutputMinMax(b, -1e6f, 1e6f);
    nodes.push_back(xn::CreateXNode(b, xn::XNodeUnion::XNNClamp, xn::CreateXNNNode1x1(b, 5, 6, 0).Union(), 0, range));
    nodes.push_back(xn::CreateXNode(b, xn::XNodeUnion::XNNMaximum, xn::CreateXNNNode2x1(b, 6, 6, 1, 0).Union()));
  } else {
    nodes.push_back(xn::CreateXNode(b, xn::XNodeUnion::XNNFullyConnected, xn::CreateXNNFullyConnected(b, input, 3, 2, 1, 0).Union()));
  }
  const std::vector<uint32_t> inputs = {0}, outputs = {1};
  b.Finish(xn::CreateXNNGraphDirect(b, "0", &nodes, &values, 2, &inputs, &outputs, &data), xn::XNNGraphIdentifier());
  VectorSink sink;
  EXPECT_TRUE(WriteXnnpackBlob({b.GetBufferPointer(), b.GetSize()}, std::move(constants)).write(sink).ok());
  return sink.bytes;
}

// The payload at an address that is a multiple of 8.
struct Loaded {
  explicit Loaded(const std::vector<std::byte>& bytes) : size(bytes.size()), words(bytes.size() / 8 + 3) {
    std::memcpy(words.data(), bytes.data(), size);
    ctx.payload = {reinterpret_cast<const std::byte*>(words.data()), size};
  }
  size_t size;
  std::vector<uint64_t> words;
  DelegateInitContext ctx;
};

std::string Differs(Delegate& delegate, int64_t rows, double tolerance) {
  std::vector<float> x(static_cast<size_t>(rows) * 3 + 4), y(8 + 4, -1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 2.5f;
  const int64_t in_sizes[] = {rows, 3}, out_sizes[] = {4, 2};
  const TensorView in[] = {TensorView(DType::kF32, in_sizes, x.data())};
  TensorView out[] = {TensorView(DType::kF32, out_sizes, y.data())};
  if (Status s = delegate.Execute(in, out); !s.ok()) return s.ToString();
  if (out[0].sizes[0] != rows || out[0].sizes[1] != 2) return "the output has size " + out[0].type().ToString();
  const float w[2][3] = {{1, 2, 3}, {4, 5, 6}};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < 2; ++o) {
      float want = o == 0 ? 10 : 20;
      for (int64_t i = 0; i < 3; ++i) want += x[static_cast<size_t>(r * 3 + i)] * w[o][i];
      const float got = y[static_cast<size_t>(r * 2 + o)];
      if (std::abs(got - want) > tolerance * 60)
        return StrCat("element ", r, ",", o, " is ", std::to_string(got), ", not ", std::to_string(want));
    }
  return "";
}

TEST(XnnpackDelegate, RunsBlobs) {
  for (Weights weights : {Weights::kF32, Weights::kNamed, Weights::kInt8Dynamic}) {
    Loaded l(Linear(weights));
    const std::vector<float> w = {1, 2, 3, 4, 5, 6, 0, 0, 0, 0};
    l.ctx.named_data = [&](std::string_view key) -> Result<std::span<const std::byte>> {
      if (key != "w") return NotFound(key);
      return std::as_bytes(std::span(w)).first(24);
    };
    auto delegate = kXnnpackDelegate.create(l.ctx);
    ASSERT_TRUE(delegate.ok()) << delegate.status().ToString();
    for (int64_t rows : {2, 1, 4, 3, 4}) EXPECT_EQ(Differs(**delegate, rows, weights == Weights::kInt8Dynamic ? 2e-2 : 1e-6), "") << rows;
    EXPECT_EQ(*kXnnpackDelegate.num_inputs(l.ctx), 1u);
  }
}

void ExpectRefused(const DelegateInitContext& ctx, std::string_view reason) {
  const auto delegate = kXnnpackDelegate.create(ctx);
  ASSERT_FALSE(delegate.ok());
  EXPECT_NE(delegate.status().ToString().find(reason), std::string::npos) << delegate.status().ToString();
}

TEST(XnnpackDelegate, RefusesWhatItCannotRun) {
  {
    Loaded l(Linear(Weights::kNamed));
    ExpectRefused(l.ctx, "refers to 'w', but the program has no named data");
    l.ctx.named_data = [](std::string_view) -> Result<std::span<const std::byte>> { return NotFound("no 'w' here"); };
    ExpectRefused(l.ctx, "no 'w' here");
    const std::vector<float> w(3);
    l.ctx.named_data = [&](std::string_view) -> Result<std::span<const std::byte>> { return std::as_bytes(std::span(w)); };
    ExpectRefused(l.ctx, "needs 24 bytes, but 'w' has 12");
  }
  Loaded short_bias(Linear(Weights::kF32, 1));
  ExpectRefused(short_bias.ctx, "has a bias that is not of 2 elements");
  Loaded cut(Linear(Weights::kF32));
  cut.ctx.payload = cut.ctx.payload.first(100);
  ExpectRefused(cut.ctx, "XnnpackBackend");
  Loaded l(Linear(Weights::kF32));
  const int64_t sizes[] = {4, 3};
  const TensorView arguments[] = {TensorView(DType::kF16, sizes, nullptr), TensorView(DType::kF32, sizes, nullptr)};
  l.ctx.arguments = arguments;
  l.ctx.num_inputs = 1;
  ExpectRefused(l.ctx, "argument 0 is f16, but the graph has f32");
  const TensorView both[] = {TensorView(DType::kF32, sizes, nullptr), TensorView(DType::kF32, sizes, nullptr)};
  l.ctx.arguments = both;
  l.ctx.num_inputs = 2;
  ExpectRefused(l.ctx, "the graph's output 1 is none of the call's arguments");
}

TEST(XnnpackDelegate, RecordsNodes) {
  Loaded l(Linear(Weights::kInt8Dynamic));
  Profiler profiler(16);
  l.ctx.profiler = &profiler;
  auto delegate = kXnnpackDelegate.create(l.ctx);
  ASSERT_TRUE(delegate.ok()) << delegate.status().ToString();
  profiler.Begin("m", 5);
  EXPECT_EQ(Differs(**delegate, 4, 2e-2), "");
  EXPECT_TRUE(profiler.details().empty());
  profiler.Clear();
  profiler.set_describing(true);
  const int64_t start = Profiler::Now();
  EXPECT_EQ(Differs(**delegate, 3, 2e-2), "");
  const int64_t end = Profiler::Now();
  const auto events = profiler.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].name.starts_with("Convert (")) << events[0].name;
  EXPECT_TRUE(events[1].name.starts_with("FullyConnected (")) << events[1].name;
  for (uint32_t i : {0, 1}) {
    EXPECT_EQ(events[i].node, i);
    EXPECT_EQ(events[i].instruction, 5u);
    EXPECT_EQ(events[i].method, "m");
  }
  EXPECT_TRUE(start <= events[0].start_ns && events[0].end_ns <= events[1].start_ns && events[1].end_ns <= end);
  ASSERT_EQ(profiler.details().size(), 2u);
  const Profiler::Detail& d = profiler.details()[1];
  EXPECT_EQ(d.inputs, (std::vector<std::string>{"qdint8[3,3]", "constant qcint8[2,3]", "constant fp32[2]"}));
  EXPECT_EQ(d.outputs, (std::vector<std::string>{"fp32[3,2]"}));
  EXPECT_EQ(d.macs, 18u);
  EXPECT_EQ(d.constant_bytes, 6u + 8u + 8u);       // weights, scales, bias
  EXPECT_EQ(d.bytes, d.constant_bytes + 9u + 24u);
}

TEST(XnnpackDelegate, FusedNodesHaveNoTimes) {
  Loaded l(Linear(Weights::kF32Clamped));
  Profiler profiler(16);
  l.ctx.profiler = &profiler;
  auto delegate = kXnnpackDelegate.create(l.ctx);
  ASSERT_TRUE(delegate.ok()) << delegate.status().ToString();
  profiler.set_describing(true);
  EXPECT_EQ(Differs(**delegate, 2, 1e-6), "");
  ASSERT_EQ(profiler.events().size(), 2u);
  EXPECT_EQ(profiler.events()[0].node, 0u);
  EXPECT_EQ(profiler.events()[1].node, 2u);
  EXPECT_TRUE(profiler.events()[1].name.starts_with("Maximum (")) << profiler.events()[1].name;
  EXPECT_EQ(profiler.details()[1].bytes, 32u) << "one operand, read once, and the result";
}

TEST(XnnpackDelegate, NamesTheWeightsOfNodes) {
  Loaded l(Linear(Weights::kNamed));
  const std::vector<float> w(10);
  l.ctx.named_data = [&](std::string_view) -> Result<std::span<const std::byte>> { return std::as_bytes(std::span(w)).first(24); };
  Profiler profiler(16);
  l.ctx.profiler = &profiler;
  auto delegate = kXnnpackDelegate.create(l.ctx);
  ASSERT_TRUE(delegate.ok()) << delegate.status().ToString();
  profiler.set_describing(true);
  (void)Differs(**delegate, 2, 1);
  ASSERT_EQ(profiler.details().size(), 1u);
  EXPECT_EQ(profiler.details()[0].layer, "w");
}

TEST(XnnpackDelegate, CountsItsMemory) {
  Loaded l(Linear(Weights::kF32));
  const uint64_t before = GetXnnpackMemory().allocations;
  auto delegate = kXnnpackDelegate.create(l.ctx);
  ASSERT_TRUE(delegate.ok());
  EXPECT_EQ(Differs(**delegate, 3, 1e-6), "");
  const uint64_t loaded = GetXnnpackMemory().allocations;
  EXPECT_GE(loaded, before);
  for (int64_t rows : {4, 1, 3, 2, 4}) EXPECT_EQ(Differs(**delegate, rows, 1e-6), "");
  EXPECT_EQ(GetXnnpackMemory().allocations, loaded);
  void* p = XnnpackAllocate(1 << 20);
  EXPECT_EQ(GetXnnpackMemory().allocations, loaded + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  XnnpackFree(p);
}

}  // namespace
}  // namespace dovetail
