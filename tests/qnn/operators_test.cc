// What the library accepts must mean what PyTorch means: the recorded samples of all operators (tests/ops) on Qualcomm's library, in floats and in fixed point.
#include <cmath>
#include <map>

#include "ir/builder.h"
#include "ops/op_samples.h"
#include "qnn/harness.h"

namespace dovetail {
namespace {

struct Range {
  double low = 0, high = 0;
  void Take(const SampleTensor& t) {
    const TensorView v = t.view();
    for (int64_t i = 0; i < v.numel(); ++i) {
      const double x = ReadElement<double>(v.dtype, v.data, i);
      low = std::min(low, x), high = std::max(high, x);
    }
  }
};

bool IsReal(const SampleTensor& t) { return t.dtype == DType::kF32 || t.dtype == DType::kF16; }

// Numbers that are finite in 16 bits, integers of 32 bits: the hardware has no others.
bool Fits(const OpSample& s) {
  for (const auto* tensors : {&s.inputs, &s.outputs})
    for (const SampleTensor& t : *tensors) {
      if (t.dtype == DType::kNone) continue;
      for (int64_t i = 0; i < t.view().numel(); ++i)
        if (!(std::abs(ReadElement<double>(t.dtype, t.view().data, i)) < (IsReal(t) ? 3e4 : 0x1p30))) return false;
    }
  return true;
}

// Between the operators of a sample and its arguments stand quantize and dequantize nodes of `stored`; kNone: none.
class Case {
 public:
  Case(const OpSample& sample, bool constants, DType stored) : sample_(sample), constants_(constants), stored_(stored) {}

  // The elements of each result; kUnsupported, in words that begin with "not taken", if the backend does not take the operator.
  Result<std::vector<std::vector<double>>> Run(const Backend& backend) {
    DT_ASSIGN_OR_RETURN(const NodeId node, Build());
    const Graph& g = *module_.graphs[0];
    if (Status s = backend.check(module_, g, g.node(node)); !s.ok()) return Unsupported("not taken: ", s.message());
    DT_ASSIGN_OR_RETURN(testing::QnnProgram program, testing::StartOnQnn(module_, backend));
    DT_ASSIGN_OR_RETURN(Method* method, program.instance->LoadMethod("forward"));
    DT_RETURN_IF_ERROR(method->Execute(arguments_));
    std::vector<std::vector<double>> results;
    for (const TensorView& t : method->outputs()) {
      auto& result = results.emplace_back();
      for (int64_t i = 0; i < t.numel(); ++i) result.push_back(ReadElement<double>(t.dtype, t.data, i));
    }
    return results;
  }

 private:
  // Operators that keep the scale of what they move get one for all.
  bool Moves() const {
    switch (sample_.op) {
      case OpId::kRelu:
      case OpId::kClamp:
      case OpId::kHardtanh:
      case OpId::kWhere:
      case OpId::kView:
      case OpId::kAmax:
      case OpId::kMaxPool2dWithIndices: return true;
      default: return GetOp(sample_.op).traits & kDataMovement;
    }
  }
  QuantParams ParamsOf(const SampleTensor& t) const {
    Range r;
    if (!Moves()) r.Take(t);
    for (const auto* tensors : {&sample_.inputs, &sample_.outputs})
      for (const SampleTensor& other : *tensors)
        if (Moves() && IsReal(other)) r.Take(other);
    if (r.high - r.low < 1e-3) r.high = r.low + 1;
    const bool wide = stored_ == DType::kU16;
    const double scale = (r.high - r.low) / (wide ? 65535 : 255), least = stored_ == DType::kI8 ? -128 : 0;
    return QuantParams::PerTensor(static_cast<float>(scale), static_cast<int>(std::nearbyint(least - r.low / scale)));
  }

  Result<NodeId> Build() {
    module_.form = Form::kCore;
    module_.graphs.push_back(std::make_unique<Graph>("forward"));
    Graph& g = *module_.graphs[0];
    Builder b(module_, g);
    std::vector<ValueId> operands;
    for (const SampleTensor& t : sample_.inputs) {
      if (t.dtype == DType::kNone) {
        operands.push_back(kNone);
        continue;
      }
      const TensorType type = t.view().type();
      const bool constant = constants_ && !operands.empty();
      ValueId v = constant ? b.AddConst(StrCat("k", operands.size()), type, t.bytes) : g.AddInput(StrCat("x", operands.size()), type);
      if (!constant) arguments_.push_back(t.view());
      if (stored_ != DType::kNone && IsReal(t)) {
        const QuantParams q = ParamsOf(t);
        DT_ASSIGN_OR_RETURN(
            v, b.Emit(OpId::kQuantize, {v}, {{"scale", static_cast<double>(q.scale)}, {"zero_point", q.zero_point}, {"out_dtype", stored_}}));
      }
      operands.push_back(v);
    }
    if (arguments_.empty()) return Unsupported("not taken: it has no operands");
    const auto results = b.EmitWith(sample_.op, operands, sample_.attrs, sample_.outputs.size());
    if (!results.ok()) return Unsupported("not taken: ", results.status().message());
    for (size_t i = 0; i < results->size() && (i == 0 || sample_.op != OpId::kMaxPool2dWithIndices); ++i) {
      ValueId v = (*results)[i];
      if (stored_ != DType::kNone && IsReal(sample_.outputs[i])) {
        if (!g.type(v).per_tensor()) g.value(v).type = TensorType(stored_, g.type(v).shape, ParamsOf(sample_.outputs[i]));
        const QuantParams q = g.type(v).quant;
        DT_ASSIGN_OR_RETURN(v, b.Emit(OpId::kDequantize, {v}, {{"scale", static_cast<double>(q.scale)}, {"zero_point", q.zero_point}}));
      }
      g.outputs.push_back(v);
    }
    return g.value((*results)[0]).producer;
  }

  const OpSample& sample_;
  const bool constants_;
  const DType stored_;
  Module module_;
  std::vector<TensorView> arguments_;
};

// How far a result may be off, as part of its range.
double Tolerance(const SampleTensor& want, DType stored) {
  if (!IsReal(want)) return 0;
  return stored == DType::kU8 || stored == DType::kI8 ? 3e-2 : stored == DType::kU16 ? 5e-3 : 8e-3;
}

std::string Difference(const SampleTensor& want, const std::vector<double>& got, double tolerance) {
  const TensorView w = want.view();
  if (static_cast<int64_t>(got.size()) != w.numel()) return StrCat(got.size(), " elements in place of ", w.numel());
  Range r;
  r.Take(want);
  const double most = tolerance * std::max(r.high - r.low, 1e-3);
  for (size_t i = 0; i < got.size(); ++i) {
    const double x = ReadElement<double>(w.dtype, w.data, static_cast<int64_t>(i));
    if (!(std::abs(got[i] - x) <= most)) return StrCat("element ", i, " is ", FormatDouble(got[i]), " in place of ", FormatDouble(x));
  }
  return {};
}

class QnnOperators : public testing::OnQnn {
 protected:
  // Gives how many operators were taken in some sample.
  size_t CheckAll(DType stored) {
    std::map<OpId, size_t> taken;
    for (const OpSample& s : OpSamples()) {
      const bool reals = std::any_of(s.inputs.begin(), s.inputs.end(), [](const SampleTensor& t) { return t.dtype == DType::kF32; });
      if (!QnnLowers(s.op) || !s.error.empty() || !Fits(s) || (stored != DType::kNone && !reals)) continue;
      for (const bool constants : {false, true}) {
        if (constants && s.inputs.size() == 1) continue;
        SCOPED_TRACE(StrCat(GetOp(s.op).name, " of ", s.where, constants ? " with constants" : "", stored == DType::kNone ? "" : StrCat(" in ", Name(stored))));
        const auto results = Case(s, constants, stored).Run(backend_);
        if (!results.ok()) {
          EXPECT_TRUE(results.status().message().starts_with("not taken")) << results.status().ToString();
          continue;
        }
        ++taken[s.op];
        for (size_t i = 0; i < results->size(); ++i) EXPECT_EQ(Difference(s.outputs[i], (*results)[i], Tolerance(s.outputs[i], stored)), "");
      }
    }
    return taken.size();
  }
};

TEST_F(QnnOperators, InFloats) { EXPECT_GE(CheckAll(DType::kNone), 58u); }
TEST_F(QnnOperators, InU8) { EXPECT_GE(CheckAll(DType::kU8), 45u); }
TEST_F(QnnOperators, InU16) { EXPECT_GE(CheckAll(DType::kU16), 40u); }
TEST_F(QnnOperators, InI8) { EXPECT_GE(CheckAll(DType::kI8), 40u); }

}  // namespace
}  // namespace dovetail
