#include "quant/fixed_point.h"

#include "ir/verifier.h"
#include "ops/quantization.h"
#include "quant/block_testing.h"
#include "quant/fixed_testing.h"

namespace dovetail {
namespace {

using namespace samples;

// Two layers, a product of activations, a residual, a norm.
std::string Block() {
  return "module {\n" + ConstantLine("a.weight", "32,32", Normal(1024, 1, 0.2f)) + ConstantLine("a.bias", "32", Normal(32, 2)) +
         ConstantLine("b.weight", "8,32", Normal(256, 3, 0.2f)) + ConstantLine("norm.weight", "32", Normal(32, 4)) + ConstantLine("half", "", {0.5f}) +
         R"(  graph @f(%x: f32[4,32]) {
    %wa = const @a.weight : f32[32,32]
    %ba = const @a.bias : f32[32]
    %wb = const @b.weight : f32[8,32]
    %wn = const @norm.weight : f32[32]
    %half = const @half : f32[]
    %n = rms_norm %x, %wn {eps=1e-05} : f32[4,32]
    %a = linear %n, %wa, %ba : f32[4,32]
    %s = silu %a : f32[4,32]
    %t = permute %s {dims=[1,0]} : f32[32,4]
    %m = mul %s, %half : f32[4,32]
    %p = matmul %m, %t : f32[4,4]
    %w = softmax %p {dim=-1} : f32[4,4]
    %v = matmul %w, %s : f32[4,32]
    %r = add %v, %x : f32[4,32]
    %y = linear %r, %wb, _ : f32[4,8]
    return %y
  }
}
)";
}

std::vector<Fixed::Call> BlockCalls() {
  std::vector<Fixed::Call> calls;
  for (unsigned i = 0; i < 8; ++i) calls.push_back({Rows(100 + i)});
  return calls;
}

TEST(FixedPoint, EveryValueBetweenOperatorsHasParameters) {
  for (const auto& [scheme, dtype, least] :
       {std::tuple("qnn-8a8w", DType::kU8, 20.0), std::tuple("qnn-16a8w", DType::kU16, 35.0), std::tuple("qnn-16a4w", DType::kU16, 14.0)}) {
    const Fixed q(Block(), scheme, BlockCalls());
    EXPECT_EQ(q.count(OpId::kQuantize), 1u) << Print(q.after);
    EXPECT_EQ(q.count(OpId::kDequantize), 1u) << Print(q.after);
    for (NodeId id : q.graph().order) {
      const Node& n = q.graph().node(id);
      if (n.op == OpId::kConst || n.op == OpId::kDequantize) continue;
      EXPECT_TRUE(q.graph().type(n.results[0]).per_tensor()) << DescribeNode(q.graph(), n);
      // Of a scheme of 8 bits the last linear, and what it reads, have 16.
      const bool last = n.op == OpId::kRequantize || n.results[0] == FindValue(q.graph(), "y");
      EXPECT_EQ(q.graph().type(n.results[0]).dtype, last ? DType::kU16 : dtype) << DescribeNode(q.graph(), n);
    }
    EXPECT_EQ(q.type("t").quant, q.type("s").quant);
    // The second factor of a product of u16.
    EXPECT_TRUE(dtype != DType::kU16 || q.type("t").quant.zero_point == 32768);
    const QuantParams weights = q.type("w").quant;
    EXPECT_EQ(weights, QuantParams::PerTensor(dtype == DType::kU8 ? 1.0f / 256 : 1.0f / 65536, 0));
    EXPECT_EQ(q.type("y").shape, (Shape{Dim(4), Dim(8)}));
    const double sqnr = q.sqnr({Rows(100)});
    EXPECT_GE(sqnr, least) << scheme;
    auto text = Parse(Print(q.after));
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    EXPECT_EQ(Print(*text), Print(q.after));
  }
}

TEST(FixedPoint, Biases) {
  const Fixed q(Block(), "qnn-16a8w", BlockCalls());
  const Node& n = *q.first(OpId::kQuantizedLinear);
  const Constant &scale = *GetConstant(q.after, q.graph(), n.operands[4]), &bias = *GetConstant(q.after, q.graph(), n.operands[5]);
  const float input = q.graph().type(n.operands[0]).quant.scale;
  for (int c = 0; c < 32; ++c) {
    const double units = static_cast<double>(reinterpret_cast<const float*>(bias.bytes().data())[c]) /
                         (static_cast<double>(input) * static_cast<double>(reinterpret_cast<const float*>(scale.bytes().data())[c]));
    EXPECT_NEAR(units, std::nearbyint(units), std::abs(units) * 1e-6 + 1e-6);
  }
}

TEST(FixedPoint, FourBitWeights) {
  const Fixed q(Block(), "qnn-16a4w", BlockCalls());
  const Node& n = *q.first(OpId::kQuantizedLinear);
  EXPECT_EQ(q.graph().type(n.operands[3]).ToString(), "u8[32,16]{per_block size=32 bits=4}");
  EXPECT_EQ(q.report.layers[0].became, "u16 per_tensor x i4 per_block size=32");
  // Wider rows: scales of a row are multiples of one number, exact in bf16, and the integers are near the weights, though a call of
  // two rows leaves compensation much freedom.
  std::vector<float> w = Normal(4 * 96, 5);
  for (size_t i = 0; i < w.size(); ++i) w[i] *= i % 96 < 32 ? 0.1f : i % 96 < 64 ? 1.0f : 3.0f;
  const std::string text = "module {\n" + ConstantLine("l.weight", "4,96", w) + ConstantLine("k.weight", "3,20", Normal(60, 6)) + R"(
  graph @f(%x: f32[2,96], %z: f32[2,20]) {
    %w = const @l.weight : f32[4,96]
    %k = const @k.weight : f32[3,20]
    %y = linear %x, %w, _ : f32[2,4]
    %u = linear %z, %k, _ : f32[2,3]
    return %y, %u
  }
}
)";
  const Fixed wide(text, "qnn-16a4w", {{Rows(1, 2, 96), Rows(2, 2, 20)}});
  const Node& l = *wide.first(OpId::kQuantizedLinear);
  const Constant &data = *GetConstant(wide.after, wide.graph(), l.operands[3]), &scale = *GetConstant(wide.after, wide.graph(), l.operands[4]);
  ASSERT_EQ(scale.type.ToString(), "bf16[4,3]");
  const uint16_t* s = reinterpret_cast<const uint16_t*>(scale.bytes().data());
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_TRUE(testing::AreMultiplesOfOne({s + r * 3, 3})) << "row " << r;
    for (int64_t k = 0; k < 96; ++k) {
      const float step = BFloat16ToFloat(s[r * 3 + k / 32]);
      const int32_t nibble = Nibble(reinterpret_cast<const uint8_t*>(data.bytes().data()) + r * 48, k);
      EXPECT_NEAR(static_cast<float>(nibble) * step, w[static_cast<size_t>(r * 96 + k)], step * 2);
    }
  }
  // 20 columns are no whole blocks.
  EXPECT_EQ(wide.report.layers[1].became, "u16 per_tensor x i4 per_channel");
  size_t four_bits = 0;
  for (NodeId id : wide.graph().order)
    if (const Node& m = wide.graph().node(id);
        m.op == OpId::kQuantizedLinear && wide.graph().type(m.operands[3]).ToString() == "i8[3,20]{per_channel axis=0 bits=4}") {
      ++four_bits;
      const Constant& c = *GetConstant(wide.after, wide.graph(), m.operands[3]);
      std::vector<std::byte> bytes(c.nbytes());
      c.CopyTo(bytes.data());
      for (std::byte b : bytes) EXPECT_LE(std::abs(static_cast<int8_t>(b)), 8);
    }
  EXPECT_EQ(four_bits, 1u) << Print(wide.after);
  EXPECT_GE(wide.sqnr({Rows(1, 2, 96), Rows(2, 2, 20)}), 14);
}

// A cache of rows, not empty at first: written at %pos, read whole.
std::string Cache(const std::string& update = "    %u = index_put %c, %pos, %k : f32[6,32]\n") {
  std::string initial = ConstantLine("", "", Normal(192, 2, 2));
  initial = initial.substr(initial.find('[', initial.find('=')));
  return "module {\n" + ConstantLine("k.weight", "32,32", Normal(1024, 1, 0.2f)) + "  state @cache : f32[6,32] = " + initial + R"(
  graph @f(%x: f32[1,32], %pos: i64[1]) {
    %w = const @k.weight : f32[32,32]
    %k = linear %x, %w, _ : f32[1,32]
    %c = state.read @cache : f32[6,32]
)" + update + R"(    state.write @cache, %u
    %t = permute %u {dims=[1,0]} : f32[32,6]
    %y = matmul %x, %t : f32[1,6]
    return %y
  }
}
)";
}

TEST(FixedPoint, StatesKeepWhatIsNotWritten) {
  for (const auto& [scheme, dtype] : {std::pair("qnn-8a8w", DType::kU8), std::pair("qnn-16a8w", DType::kU16), std::pair("qnn-16a4w", DType::kU16)}) {
    std::vector<Fixed::Call> calls;
    for (unsigned i = 0; i < 4; ++i) calls.push_back({Rows(50 + i, 1), Ints({i})});
    const Fixed q(Cache(), scheme, calls);
    const State& state = q.after.states[0];
    ASSERT_EQ(state.type.dtype, dtype);
    ASSERT_TRUE(state.type.per_tensor());
    EXPECT_TRUE(q.report.warnings.empty());
    // One set of parameters for all that moves.
    for (const char* name : {"k", "c", "u", "t"}) EXPECT_EQ(q.type(name).quant, state.type.quant) << name;
    auto states = InitStates(q.after), real = InitStates(q.before);
    ASSERT_TRUE(states.ok() && real.ok());
    const OwnedTensor initial = (*states)[0];
    for (int64_t i = 0; i < 192; ++i)
      EXPECT_NEAR(Values(Dequantize(initial))[static_cast<size_t>(i)], Values((*real)[0])[static_cast<size_t>(i)], state.type.quant.scale * 0.51f);
    for (int64_t at : {4, 1}) {
      const Fixed::Call call = {Rows(60 + static_cast<unsigned>(at), 1), Ints({at})};
      ASSERT_TRUE(Interpret(q.after, q.graph(), call, *states).ok());
      ASSERT_TRUE(Interpret(q.before, *q.before.graphs[0], call, *real).ok());
    }
    const size_t row = 32 * ByteSize(dtype);
    for (size_t r = 0; r < 6; ++r) {
      const bool same = std::memcmp((*states)[0].storage.data() + r * row, initial.storage.data() + r * row, row) == 0;
      EXPECT_EQ(same, r != 4 && r != 1) << r;
    }
    EXPECT_GE(Sqnr(Values((*real)[0]), Values(Dequantize((*states)[0]))), 14) << scheme;
  }
}

TEST(FixedPoint, KeptStatesStayFloat) {
  const Fixed q(Cache(), "qnn-8a8w", {{Rows(50, 1), Ints({0})}}, {"cache"});
  EXPECT_EQ(q.after.states[0].type.dtype, DType::kF32);
  ASSERT_EQ(q.report.warnings.size(), 1u);
  EXPECT_NE(q.report.warnings[0].find("state 'cache' stays float: --keep-float asks for it"), std::string::npos) << q.report.warnings[0];
  EXPECT_GE(q.sqnr({Rows(50, 1), Ints({0})}), 25);
}

TEST(FixedPoint, ArithmeticOnStatesIsWarnedOf) {
  const Fixed q(Cache("    %u = add %c, %k : f32[6,32]\n"), "qnn-16a8w", {{Rows(50, 1), Ints({0})}});
  ASSERT_EQ(q.report.warnings.size(), 1u);
  EXPECT_NE(q.report.warnings[0].find("computed anew by each call"), std::string::npos) << q.report.warnings[0];
}

// Two methods on one cache agree on its parameters, whichever writes the larger rows and last.
TEST(FixedPoint, MethodsShareAState) {
  std::string text = Cache();
  const size_t graph = text.find("  graph @f"), end = text.rfind("}\n");
  std::string second = text.substr(graph, end - graph);
  second.replace(second.find("@f"), 2, "@g");
  for (size_t at; (at = second.find("[1,32]")) != std::string::npos;) second.replace(at, 6, "[2,32]");
  for (size_t at; (at = second.find("[1,6]")) != std::string::npos;) second.replace(at, 5, "[2,6]");
  second.replace(second.find("%pos: i64[1]"), 12, "%pos: i64[2]");
  text.insert(end, second);
  const Fixed q(text, "qnn-16a8w", {{Rows(1, 1), Ints({0})}, {Rows(3, 1), Ints({3})}, {Rows(2, 2, 32, 4), Ints({1, 2})}});
  ASSERT_EQ(q.after.graphs.size(), 2u);
  const TensorType state = q.after.states[0].type;
  ASSERT_EQ(state.dtype, DType::kU16);
  for (const auto& g : q.after.graphs)
    for (const char* name : {"k", "c", "u"}) EXPECT_EQ(g->type(FindValue(*g, name)).quant, state.quant) << g->name << name << Print(q.after);
}

// A method that no call reached has the ranges of the one that is the same model.
TEST(FixedPoint, MethodsWithoutCallsTakeTheRangesOfOthers) {
  std::string text = Block();
  const size_t graph = text.find("  graph @f"), end = text.rfind("}\n");
  std::string second = text.substr(graph, end - graph);
  second.replace(second.find("@f"), 2, "@g");
  for (const auto& [from, to] : {std::pair("[4,32]", "[2,32]"), std::pair("[32,4]", "[32,2]"), std::pair("[4,4]", "[2,2]"), std::pair("[4,8]", "[2,8]")})
    for (size_t at; (at = second.find(from)) != std::string::npos;) second.replace(at, std::string(from).size(), to);
  text.insert(end, second);
  const Fixed q(text, "qnn-16a8w", BlockCalls());
  EXPECT_TRUE(q.report.warnings.empty()) << q.report.warnings[0];
  for (const char* name : {"n", "a", "s", "p", "v", "r", "y"})
    EXPECT_EQ(q.after.graphs[1]->type(FindValue(*q.after.graphs[1], name)).quant, q.type(name).quant) << name;
  // Another model has no ranges to lend: one warning.
  text.insert(text.rfind("}\n"), "  graph @h(%z: f32[3,5]) {\n    %h1 = exp %z : f32[3,5]\n    %h2 = exp %h1 : f32[3,5]\n    return %h2\n  }\n");
  const Fixed other(text, "qnn-16a8w", BlockCalls());
  ASSERT_EQ(other.report.warnings.size(), 1u);
  EXPECT_NE(other.report.warnings[0].find("no calibration call is of method @h, so it stays float; one has the inputs z: f32[3,5]"), std::string::npos)
      << other.report.warnings[0];
}

TEST(FixedPoint, Positions) {
  std::string text = Masked("_, %p");
  text.replace(text.find("%m: f32[6,6], %b: bool[6,6]"), 27, "%p: i64[6]");
  std::vector<Fixed::Call> calls;
  for (unsigned i = 0; i < 4; ++i) calls.push_back({Rows(70 + i, 6, 16), Ints({0, 1, 2, 3, 4, 5})});
  const Fixed q(text, "qnn-8a8w", calls);
  EXPECT_EQ(q.count(OpId::kAttention), 0u);
  const Node& where = *q.first(OpId::kWhere);
  EXPECT_EQ(q.graph().type(where.operands[1]).quant, q.graph().type(where.results[0]).quant);
  EXPECT_EQ(q.graph().type(where.operands[2]).quant, q.graph().type(where.results[0]).quant);
  EXPECT_GE(q.sqnr(calls[0]), 24);
}

// Angles computed from positions stay float; what they turn does not.
TEST(FixedPoint, PositionsAreNotActivations) {
  const std::string text = "module {\n" + ConstantLine("frequencies", "16", Normal(16, 1, 30)) + ConstantLine("l.weight", "16,16", Normal(256, 2, 0.3f)) +
                           R"(  graph @f(%x: f32[4,16], %pos: i64[4], %t: f32[1]) {
    %f = const @frequencies : f32[16]
    %w = const @l.weight : f32[16,16]
    %p = to_dtype %pos {out_dtype=f32} : f32[4]
    %c = view %p {size=[4,1]} : f32[4,1]
    %angle = mul %c, %f : f32[4,16]
    %cos = cos %angle : f32[4,16]
    %step = view %t {size=[1,1]} : f32[1,1]
    %phase = mul %step, %f : f32[1,16]
    %sin = sin %phase : f32[1,16]
    %l = linear %x, %w, _ : f32[4,16]
    %y = mul %l, %cos : f32[4,16]
    %z = add %y, %sin : f32[4,16]
    return %z
  }
}
)";
  const Fixed::Call call = {Rows(3, 4, 16), Ints({0, 90, 500, 1000}), Floats({Dim(1)}, {700})};
  const Fixed q(text, "qnn-8a8w", {call});
  for (const char* name : {"c", "angle", "cos", "step", "phase", "sin"}) EXPECT_EQ(q.type(name).dtype, DType::kF32) << name;
  for (const char* name : {"l", "y"}) EXPECT_EQ(q.type(name).dtype, DType::kU8) << name;
  EXPECT_EQ(q.count(OpId::kQuantize), 3u) << Print(q.after);
  EXPECT_GE(q.sqnr(call), 30);
}

TEST(FixedPoint, LookupsMoveIntegers) {
  const std::string text = "module {\n" + ConstantLine("table.weight", "10,16", Normal(160, 1)) + ConstantLine("l.weight", "16,16", Normal(256, 2, 0.3f)) +
                           R"(  graph @f(%ids: i64[3]) {
    %t = const @table.weight : f32[10,16]
    %w = const @l.weight : f32[16,16]
    %e = embedding %t, %ids : f32[3,16]
    %y = linear %e, %w, _ : f32[3,16]
    return %y
  }
}
)";
  const Fixed q(text, "qnn-16a8w", {{Ints({1, 1, 1})}});
  const Node& n = *q.first(OpId::kEmbedding);
  EXPECT_EQ(q.graph().type(n.operands[0]).dtype, DType::kU16);
  EXPECT_EQ(q.graph().type(n.operands[0]).quant, q.type("e").quant);
  EXPECT_EQ(q.count(OpId::kQuantize), 0u);
  EXPECT_EQ(q.report.layers[0].became, "u16 per_tensor table");
  // The range is the table's, and not that of the rows that calls look up.
  OwnedTensor table = OwnedTensor::Make(q.graph().type(n.operands[0]));
  GetConstant(q.after, q.graph(), n.operands[0])->CopyTo(table.storage.data());
  const std::vector<float> want = Normal(160, 1), got = Values(Dequantize(table));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], q.type("e").quant.scale * 0.51f);
}

TEST(FixedPoint, KeepFloatMixesLayers) {
  const Fixed q(Block(), "qnn-8a8w", BlockCalls(), {"a"});
  EXPECT_EQ(q.report.layers[0].reason, "--keep-float asks for it");
  EXPECT_EQ(q.report.layers[1].became, "u16 per_tensor x i8 per_channel");
  EXPECT_EQ(q.count(OpId::kLinear), 1u);
  EXPECT_EQ(q.count(OpId::kQuantize), 2u) << Print(q.after);
  EXPECT_EQ(q.type("n").dtype, DType::kF32);  // between an input and a float layer
  EXPECT_EQ(q.count(OpId::kDequantize), 1u) << Print(q.after);
  EXPECT_GE(q.sqnr({Rows(100)}), 20);
}

std::vector<float> Gain() {
  std::vector<float> gain(32, 1);
  gain[0] = 0.003f;
  return gain;
}

// A sum with a channel far larger than the others, which is made small before the next layer.
std::string Outliers() {
  return "module {\n" + ConstantLine("a.weight", "32,32", Normal(1024, 1, 0.2f)) + ConstantLine("b.weight", "32,32", Normal(1024, 3, 0.2f)) +
         ConstantLine("gain", "32", Gain()) +
         R"(  graph @f(%x: f32[4,32], %far: f32[4,32]) {
    %wa = const @a.weight : f32[32,32]
    %wb = const @b.weight : f32[32,32]
    %g = const @gain : f32[32]
    %a = linear %x, %wa, _ : f32[4,32]
    %r = relu %a : f32[4,32]
    %s = add %r, %far : f32[4,32]
    %n = mul %s, %g : f32[4,32]
    %y = linear %n, %wb, _ : f32[4,32]
    %z = softmax %y {dim=-1} : f32[4,32]
    return %z
  }
}
)";
}

TEST(FixedPoint, OutliersGetSixteenBits) {
  std::vector<Fixed::Call> calls;
  for (unsigned i = 0; i < 4; ++i) {
    std::vector<float> far(128);
    for (size_t k = 0; k < 128; k += 32) far[k] = 300 + static_cast<float>(i);
    calls.push_back({Rows(100 + i), Floats({Dim(4), Dim(32)}, far)});
  }
  const Fixed q(Outliers(), "qnn-8a8w", calls);
  // The sum and what makes and reads it; then back.
  EXPECT_EQ(q.type("s").dtype, DType::kU16) << Print(q.after);
  for (const char* name : {"r", "n", "y", "z"}) EXPECT_EQ(q.type(name).dtype, DType::kU8) << name << Print(q.after);
  EXPECT_EQ(q.count(OpId::kRequantize), 2u) << Print(q.after);
  for (const LayerReport& l : q.report.layers) EXPECT_EQ(l.became, "u8 per_tensor x i8 per_channel") << l.path;
  // Each node computes on one type.
  for (NodeId id : q.graph().order) {
    const Node& n = q.graph().node(id);
    if (n.op != OpId::kAdd && n.op != OpId::kMul) continue;
    for (ValueId v : {n.operands[0], n.operands[1], n.results[0]}) EXPECT_EQ(q.graph().type(v).dtype, DType::kU16) << DescribeNode(q.graph(), n);
  }
  EXPECT_GE(q.sqnr(calls[0]), 25);
  auto text = Parse(Print(q.after));
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(Print(*text), Print(q.after));
  // Without a channel that is far from the others 8 bits do.
  for (Fixed::Call& call : calls) call[1] = Rows(7);
  const Fixed same(Outliers(), "qnn-8a8w", calls);
  EXPECT_EQ(same.count(OpId::kRequantize), 0u) << Print(same.after);
  EXPECT_EQ(same.type("s").dtype, DType::kU8);
}

// The greatest of many scores may be far beyond those of calibration, with an input that is not.
TEST(FixedPoint, LogitsDoNotSaturate) {
  const std::string text = "module {\n" + ConstantLine("a.weight", "8,32", std::vector<float>(256, 0.25f)) + R"(  graph @f(%x: f32[4,32]) {
    %w = const @a.weight : f32[8,32]
    %r = relu %x : f32[4,32]
    %y = linear %r, %w, _ : f32[4,8]
    %z = view %y {size=[32]} : f32[32]
    return %z
  }
}
)";
  std::vector<float> alike(128);
  for (size_t i = 0; i < alike.size(); ++i) alike[i] = i % 32 < 24 ? 1.9f : 0;
  for (const char* scheme : {"qnn-8a8w", "qnn-16a8w", "qnn-16a4w"}) {
    const Fixed q(text, scheme, BlockCalls());
    EXPECT_EQ(q.type("y").dtype, DType::kU16);
    EXPECT_GE(q.sqnr({Floats({Dim(4), Dim(32)}, alike)}), 30) << scheme;
  }
}

// The hardware gives anything for a layer whose results share a range with values that are far larger.
TEST(FixedPoint, LayersBesideFarLargerValuesStayFloat) {
  const std::string text = "module {\n" + ConstantLine("a.weight", "32,32", Normal(1024, 1, 0.2f)) + R"(  graph @f(%x: f32[4,32], %far: f32[4,32]) {
    %w = const @a.weight : f32[32,32]
    %a = linear %x, %w, _ : f32[4,32]
    %c = cat %a, %far {dim=1} : f32[4,64]
    return %c
  }
}
)";
  for (const char* scheme : {"qnn-8a8w", "qnn-16a8w", "qnn-16a4w"})
    for (const float far : {1.0f, 1e9f, 3e38f}) {
      const Fixed q(text, scheme, {{Rows(7), Floats({Dim(4), Dim(32)}, std::vector<float>(128, -far))}});
      EXPECT_EQ(q.report.layers[0].became.empty(), far > 1) << scheme << " " << far;
      EXPECT_EQ(q.report.layers[0].reason.find("too small beside") != std::string::npos, far > 1) << q.report.layers[0].reason;
    }
}

TEST(FixedPoint, NeedsCalibration) {
  Module m = Parsed(Block());
  QuantizeOptions options;
  options.scheme = FindScheme("qnn-16a8w");
  QuantizeReport report;
  const std::string message = Quantize(m, options, report).ToString();
  EXPECT_NE(message.find("--calibrate"), std::string::npos) << message;
  EXPECT_NE(message.find("qnn-fp16 needs none"), std::string::npos) << message;
  options.scheme = FindScheme("qnn-fp16");
  EXPECT_TRUE(Quantize(m, options, report).ok());
  EXPECT_TRUE(report.warnings.empty());
  EXPECT_TRUE(report.layers.empty());
}

TEST(FixedPoint, NothingIsKnownOfCallsThatWereNotMade) {
  const Fixed nothing(Block(), "qnn-8a8w", {{Floats({Dim(4), Dim(32)}, std::vector<float>(128, NAN))}});
  EXPECT_EQ(nothing.count(OpId::kQuantize), 0u) << Print(nothing.after);
  for (const LayerReport& l : nothing.report.layers) EXPECT_EQ(l.reason, "no calibration call gave it a value");
}

TEST(FixedPoint, CallsOfZerosAreWarnedOf) {
  const OwnedTensor zeros = Floats({Dim(4), Dim(32)}, std::vector<float>(128, 0));
  for (const char* scheme : {"qnn-8a8w", "qnn-16a8w", "int8"}) {
    const Fixed q(Block(), scheme, {{zeros}, {zeros}});
    ASSERT_EQ(q.report.warnings.size(), 1u) << scheme;
    EXPECT_NE(q.report.warnings[0].find("every calibration call of @f has nothing but zeros in these"), std::string::npos) << q.report.warnings[0];
    // The static scheme looks at inputs of layers only.
    EXPECT_NE(q.report.warnings[0].find(scheme[0] == 'q' ? "the input %x" : "%n of rms_norm"), std::string::npos) << q.report.warnings[0];
    EXPECT_TRUE(Fixed(Block(), scheme, {{zeros}, {Rows(100)}}).report.warnings.empty()) << scheme;
  }
}

TEST(FixedPoint, DegenerateRanges) {
  for (float v : {0.0f, 3.0f, -3.0f})
    for (const char* scheme : {"qnn-8a8w", "qnn-16a8w"}) {
      const OwnedTensor x = Floats({Dim(4), Dim(32)}, std::vector<float>(128, v));
      const Fixed q(Block(), scheme, {{x}});
      auto got = RunOnce(q.after, {x});
      ASSERT_TRUE(got.ok());
      for (float y : Values((*got)[0])) EXPECT_TRUE(std::isfinite(y));
      if (v != 0) {
        EXPECT_GE(q.sqnr({x}), 20) << v;
      }
    }
}

}  // namespace
}  // namespace dovetail
