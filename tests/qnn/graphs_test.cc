// Graphs on Qualcomm's library beside the interpreter, in numbers that 16 bits hold: indices, states, types and names where the two may mean different things.
#include <cstring>

#include "ir/interpreter.h"
#include "ir/text.h"
#include "models/reference.h"
#include "qnn/harness.h"

namespace dovetail {
namespace {

struct Body {
  std::string name;
  std::string text;
  std::vector<std::vector<int64_t>> integers = {};  // of the i64 inputs, by call; all have as many calls
  double tolerance = 1e-3;
  bool on_npu = true;  // whether all of it is one delegate call
  friend void PrintTo(const Body& body, std::ostream* out) { *out << body.name; }
};

const Body kBodies[] = {
    {"IndexFromTheEnd", "graph @f(%x: f32[4,3], %i: i64[2]) {\n%y = index %x, %i : f32[2,3]\nreturn %y\n}\n", {{-1, 1}, {0, -4}, {2, 3}}},
    {"IndexOfALaterDimFromTheEnd", "graph @f(%x: f32[2,3,4], %i: i64[2,2]) {\n%y = index %x, _, %i : f32[2,2,2,4]\nreturn %y\n}\n", {{-1, 1, 0, -3}}},
    {"IndexWithoutDims", "graph @f(%x: f32[2,3,4], %i: i64[]) {\n%y = index %x, _, %i : f32[2,4]\nreturn %y\n}\n", {{-1}, {0}, {2}}},
    {"IndexOfFiveDims", "graph @f(%x: f32[2,3,4,5], %i: i64[2,3]) {\n%y = index %x, _, _, %i : f32[2,3,2,3,5]\nreturn %y\n}\n", {{-1, 1, 0, 3, 2, -4}}},
    {"TwoIndicesFromTheEnd", "graph @f(%x: f32[4,3,2], %i: i64[2,1], %j: i64[1,2]) {\n%y = index %x, %i, %j : f32[2,2,2]\nreturn %y\n}\n", {{-1, 1, -3, 2}}},
    // As models look up a mask for each query and key.
    {"TwoIndicesOfFourDims",
     "graph @f(%x: f32[1,8], %i: i64[1,1,1,1], %j: i64[1,1,1,8]) {\n%m = to_dtype %x {out_dtype=bool} : bool[1,8]\n%y = index %m, %i, %j : bool[1,1,1,8]\n"
     "return %y\n}\n",
     {{0, 0, 1, 2, 3, 4, 5, -2, -1}}},
    {"PutFromTheEnd", "graph @f(%x: f32[4,3], %i: i64[2], %v: f32[2,3]) {\n%y = index_put %x, %i, %v : f32[4,3]\nreturn %y\n}\n", {{-1, 1}, {2, -4}}},
    {"PutOfALaterDimFromTheEnd",
     "graph @f(%x: f32[2,4,3], %i: i64[2], %v: f32[2,2,3]) {\n%y = index_put %x, _, %i, %v : f32[2,4,3]\nreturn %y\n}\n", {{-1, 1}}},
    {"PutOfTwoIndices",
     "graph @f(%x: f32[4,3], %i: i64[2,1], %j: i64[1,2], %v: f32[2,2]) {\n%y = index_put %x, %i, %j, %v : f32[4,3]\nreturn %y\n}\n",
     {{3, 0, 2, 1}, {-1, 0, -1, 0}}},
    // As many values as each index has numbers, but not as many as they address.
    {"PutOfTwoIndicesThatBroadcast",
     "graph @f(%x: f32[4,3], %i: i64[2,1], %j: i64[1,2], %v: f32[2]) {\n%y = index_put %x, %i, %j, %v : f32[4,3]\nreturn %y\n}\n",
     {{3, 0, 2, 1}}, 1e-3, false},
    {"PutIntoAState",
     "graph @f(%v: f32[1,3], %i: i64[1]) {\n%r = state.read @s : f32[4,3]\n%u = index_put %r, %i, %v : f32[4,3]\nstate.write @s, %u\n%y = neg %u : f32[4,3]\n"
     "return %y\n}\n",
     {{0}, {-1}, {2}, {-3}}},
    {"OldContentsOfAStateAreReadLater",
     "graph @f(%v: f32[1,3], %i: i64[1]) {\n%r = state.read @s : f32[4,3]\n%u = index_put %r, %i, %v : f32[4,3]\nstate.write @s, %u\n%p = neg %u : f32[4,3]\n"
     "%y = add %r, %p : f32[4,3]\nreturn %y\n}\n",
     {{0}, {-1}, {2}}},
    {"IntegersOfAConvolution",
     "graph @f(%x: f32[1,2,3,3]) {\n%w = const @w : f32[2,2,1,1]\n%c = convolution %x, %w, _ {stride=[1,1],padding=[0,0],dilation=[1,1],transposed=false,"
     "output_padding=[0,0],groups=1} : f32[1,2,3,3]\n%y = to_dtype %c {out_dtype=i64} : i64[1,2,3,3]\nreturn %y\n}\n"},
    {"BoolsOfIntegers", "graph @f(%i: i64[4]) {\n%y = to_dtype %i {out_dtype=bool} : bool[4]\nreturn %y\n}\n", {{0, 256, -1, 65536}}},
    {"NamesThatMeanStatesToTheDelegate", "graph @f(%mutbuf_3_x: f32[2], %x: f32[2]) {\n%mutbuf_4_y = add %mutbuf_3_x, %x : f32[2]\nreturn %mutbuf_4_y\n}\n"},
    {"AnglesOfPositions",
     "graph @f(%x: f32[1,4], %i: i64[1]) {\n%w = const @frequencies : f32[4]\n%p = to_dtype %i {out_dtype=f32} : f32[1]\n%v = view %p {size=[1,1]} : f32[1,1]\n"
     "%a = mul %v, %w : f32[1,4]\n%c = cos %a : f32[1,4]\n%s = sin %a : f32[1,4]\n%q = mul %x, %c : f32[1,4]\n%y = sub %q, %s : f32[1,4]\nreturn %y\n}\n",
     {{3}, {300}, {3001}}, 1e-3, false},
};

// Of fixed point, whose parameters reach beyond the bounds. An operator in front of it may take it in.
std::string Clamped(const std::string& type, const std::string& made, const std::string& clamp) {
  const std::string q = type + "[1,2,3,3]{per_tensor scale=0.125 zero_point=128}", attrs = " {scale=0.125, zero_point=128, out_dtype=" + type + "}";
  return StrCat("graph @f(%x: f32[1,2,3,3]) {\n%q = quantize %x", attrs, " : ", q, "\n%s = ", made, " : ", q, "\n%c = ", clamp, " : ", q,
                "\n%y = dequantize %c {scale=0.125, zero_point=128} : f32[1,2,3,3]\nreturn %y\n}\n");
}
std::vector<Body> ClampsOfEachType() {
  static const struct {
    const char *name, *text;
    double tolerance;  // a product may be rounded to the next step
  } kMade[] = {{"Sum", "add %q, %q", 1e-3}, {"Product", "mul %q, %q", 0.125}, {"Difference", "sub %q, %q", 1e-3}};
  static const std::pair<const char*, const char*> kClamps[] = {
      {"ReluAndCeiling", "clamp %s {min=0.0,max=3.0}"}, {"BothBounds", "clamp %s {min=-1.5,max=3.0}"},
      {"Ceiling", "clamp %s {max=-2.0}"},               {"Floor", "clamp %s {min=1.0}"},
      {"Hardtanh", "hardtanh %s {min_val=-1.0,max_val=2.5}"}, {"BoundsAtTheEnds", "clamp %s {min=-16.0,max=9000.0}"},
      {"Relu", "relu %s"}};
  std::vector<Body> bodies;
  for (const char* type : {"u8", "u16"})
    for (const auto& made : kMade)
      for (const auto& [name, clamp] : kClamps) bodies.push_back({StrCat(name, "OfA", made.name, "Of", type), Clamped(type, made.text, clamp), {}, made.tolerance});
  return bodies;
}

class QnnGraphs : public testing::OnQnn, public ::testing::WithParamInterface<Body> {};

OwnedTensor Input(const TensorType& type, size_t call, std::span<const int64_t>* integers) {
  OwnedTensor t = OwnedTensor::Make(type);
  for (int64_t i = 0; i < t.view().numel(); ++i) {
    if (type.dtype == DType::kF32) {
      t.view().as<float>()[i] = static_cast<float>((i * 37 + static_cast<int64_t>(call) * 11) % 64 - 32) / 8;
    } else {
      t.view().as<int64_t>()[i] = integers->front();
      *integers = integers->subspan(1);
    }
  }
  return t;
}

TEST_P(QnnGraphs, MeanWhatTheInterpreterMeans) {
  const std::string text = StrCat("module {\nconstant @w : f32[2,2,1,1] = [1.25,-0.5,2.0,0.75]\nconstant @frequencies : f32[4] = [1.0,0.1,0.01,0.001]\n",
                                  "state @s : f32[4,3] = [0.0,1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,9.0,10.0,11.0]\n", GetParam().text, "}\n");
  const auto before = Parse(text);
  ASSERT_TRUE(before.ok()) << before.status().ToString();
  Module module = Parse(text).value();
  const auto program = testing::StartOnQnn(module, backend_);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const auto method = program->instance->LoadMethod("f");
  ASSERT_TRUE(method.ok()) << method.status().ToString();
  size_t kernels = 0;
  for (const OperatorInfo& op : (*method)->info().operators) kernels += op.calls;
  if (GetParam().on_npu) {
    EXPECT_EQ(kernels, 0u) << (*method)->info().operators[0].name;
  }
  StateStore states = InitStates(*before).value();
  for (size_t call = 0; call < std::max<size_t>(1, GetParam().integers.size()); ++call) {
    SCOPED_TRACE(call);
    std::span<const int64_t> integers;
    if (!GetParam().integers.empty()) integers = GetParam().integers[call];
    std::vector<OwnedTensor> inputs;
    std::vector<TensorView> views;
    for (ValueId v : before->graphs[0]->inputs) inputs.push_back(Input(before->graphs[0]->type(v), call, &integers));
    for (const OwnedTensor& t : inputs) views.push_back(t.view());
    const auto want = Interpret(*before, *before->graphs[0], inputs, states);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    const Status ran = (*method)->Execute(views);
    ASSERT_TRUE(ran.ok()) << ran.ToString();
    for (size_t i = 0; i < want->size(); ++i) {
      const auto difference = testing::Difference(OwnedTensor::CopyOf((*method)->outputs()[i]), (*want)[i]);
      ASSERT_TRUE(difference.ok()) << difference.status().ToString();
      EXPECT_LE(*difference, GetParam().tolerance) << "output " << i;
    }
    const auto state = program->instance->State("s");
    if (state.ok()) {
      EXPECT_LE(*testing::Difference(OwnedTensor::CopyOf(*state), states[0]), GetParam().tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Clamps, QnnGraphs, ::testing::ValuesIn(ClampsOfEachType()), [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(All, QnnGraphs, ::testing::ValuesIn(kBodies), [](const auto& info) { return info.param.name; });

using QnnChecks = testing::OnQnn;

TEST_F(QnnChecks, RefuseInWords) {
  const auto refusal = [&](const std::string& text) {
    const auto module = Parse(StrCat("module {\n", text, "}\n"));
    EXPECT_TRUE(module.ok()) << module.status().ToString();
    const Graph& g = *module->graphs[0];
    const Status s = backend_.check(*module, g, g.node(g.order.back()));
    return s.ok() ? "taken" : std::string(s.message());
  };
  EXPECT_EQ(refusal("constant @t : f32[400000,4000] = external\ngraph @f(%i: i64[2]) {\n%t = const @t : f32[400000,4000]\n"
                    "%y = embedding %t, %i : f32[2,4000]\nreturn %y\n}\n"),
            "QNN: the constant 't' of 6400000000 bytes; it takes less than 4 GiB");
  EXPECT_EQ(refusal("constant @i : i64[2] = [1,-5]\ngraph @f(%x: f32[4]) {\n%i = const @i : i64[2]\n%y = index %x, %i : f32[2]\nreturn %y\n}\n"),
            "QNN: the constant index 'i' is out of bounds for a dim of 4");
  std::string many = "4294967296";
  for (int i = 1; i < 2000; ++i) many += ",0";
  EXPECT_EQ(refusal(StrCat("constant @k : i64[2000] = [", many, "]\ngraph @f(%x: i64[2000]) {\n%k = const @k : i64[2000]\n",
                           "%y = add %x, %k : i64[2000]\nreturn %y\n}\n")),
            "QNN: constant 'k' has a number beyond 32 bits");
  EXPECT_EQ(refusal("graph @f(%x: f32[4,2], %i: i64[0], %v: f32[0,2]) {\n%y = index_put %x, %i, %v : f32[4,2]\nreturn %y\n}\n"),
            "QNN: a tensor without elements");
}

}  // namespace
}  // namespace dovetail
