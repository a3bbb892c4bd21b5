// Small modules quantized for fixed-point hardware, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "quant/quantize.h"
#include "quant/static_samples.h"

namespace dovetail {

using namespace samples;

inline OwnedTensor Ints(std::vector<int64_t> values) {
  OwnedTensor t = OwnedTensor::Make(TensorType(DType::kI64, {Dim(static_cast<int64_t>(values.size()))}));
  std::copy(values.begin(), values.end(), t.view().as<int64_t>());
  return t;
}

// A module quantized with calls: of the first graph, named input_0 and on, unless they are given names.
struct Fixed {
  Module before, after;
  QuantizeReport report;
  Status status;

  using Call = std::vector<OwnedTensor>;
  Fixed(const std::string& text, const std::string& scheme, const std::vector<Call>& calls, std::vector<std::string> keep_float = {})
      : before(Parsed(text)), after(Parsed(text)) {
    const TempFolder folder;
    QuantizeOptions options;
    options.scheme = FindScheme(scheme);
    options.keep_float = std::move(keep_float);
    for (size_t i = 0; i < calls.size(); ++i) {
      std::vector<std::pair<std::string, OwnedTensor>> named;
      for (size_t k = 0; k < calls[i].size(); ++k) named.emplace_back(StrCat("input_", k), calls[i][k]);
      options.calibration.push_back(folder.Write(StrCat(100 + i, ".npz"), named));
    }
    status = Quantize(after, options, report);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  const Graph& graph() const { return *after.graphs[0]; }
  TensorType type(std::string_view name) const {
    const ValueId v = FindValue(graph(), name);
    EXPECT_NE(v, kNone) << name << " in\n" << Print(after);
    return v == kNone ? TensorType() : graph().type(v);
  }
  size_t count(OpId op) const {
    return static_cast<size_t>(std::count_if(graph().order.begin(), graph().order.end(), [&](NodeId id) { return graph().node(id).op == op; }));
  }
  const Node* first(OpId op) const {
    for (NodeId id : graph().order)
      if (graph().node(id).op == op) return &graph().node(id);
    ADD_FAILURE() << "no " << GetOp(op).name << " in\n" << Print(after);
    return nullptr;
  }
  double sqnr(const Call& call) const {
    auto want = RunOnce(before, call), got = RunOnce(after, call);
    EXPECT_TRUE(want.ok() && got.ok()) << want.status().ToString() << got.status().ToString();
    return want.ok() && got.ok() ? Sqnr(Values((*want)[0]), Values((*got)[0])) : 0;
  }
};

inline OwnedTensor Rows(unsigned seed, int64_t rows = 4, int64_t width = 32, float scale = 1) {
  return Floats({Dim(rows), Dim(width)}, Normal(static_cast<size_t>(rows * width), seed, scale));
}

// Attention with a mask of any kind: what it hides has no part in a range, and no weight.
inline std::string Masked(const std::string& mask) {
  return "module {\n" + ConstantLine("q.weight", "16,16", Normal(256, 1, 0.4f)) + ConstantLine("k.weight", "16,16", Normal(256, 2, 0.4f)) +
         R"(  graph @f(%x: f32[6,16], %m: f32[6,6], %b: bool[6,6]) {
    %wq = const @q.weight : f32[16,16]
    %wk = const @k.weight : f32[16,16]
    %q = linear %x, %wq, _ : f32[6,16]
    %k = linear %x, %wk, _ : f32[6,16]
    %q3 = view %q {size=[1,6,16]} : f32[1,6,16]
    %k3 = view %k {size=[1,6,16]} : f32[1,6,16]
    %a = attention %q3, %k3, %k3, )" + mask + R"( {is_causal=false} : f32[1,6,16]
    %y = view %a {size=[6,16]} : f32[6,16]
    return %y
  }
}
)";
}

}  // namespace dovetail
