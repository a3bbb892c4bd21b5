// What tests of static quantization share: programs in the text form with made-up weights, and calls written to files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "format/arrays.h"
#include "ir/interpreter.h"
#include "ir/text.h"
#include "quant/quantize.h"

namespace dovetail::samples {

inline std::vector<float> Normal(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

// A line "  constant @NAME : f32[SHAPE] = [...]\n".
inline std::string ConstantLine(const std::string& name, const std::string& shape, const std::vector<float>& values) {
  std::string s = StrCat("  constant @", name, " : f32[", shape, "] = [");
  for (size_t i = 0; i < values.size(); ++i) s += StrCat(i ? "," : "", FormatDouble(static_cast<double>(values[i])));
  return s + "]\n";
}

inline Module Parsed(const std::string& text) {
  auto module = Parse(text);
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  return module.ok() ? std::move(*module) : Module();
}

inline OwnedTensor Floats(Shape shape, const std::vector<float>& values) {
  OwnedTensor t = OwnedTensor::Make(TensorType(DType::kF32, shape));
  EXPECT_EQ(t.view().nbytes(), values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(t.view().data, values.data(), t.view().nbytes());
  return t;
}
inline std::vector<float> Values(const OwnedTensor& t) {
  EXPECT_EQ(t.type.dtype, DType::kF32);
  return {t.view().as<float>(), t.view().as<float>() + t.view().numel()};
}

// A folder that is gone after the test.
class TempFolder {
 public:
  TempFolder() {
    path_ = std::filesystem::temp_directory_path() / StrCat("dovetail_quant_", getpid(), "_", counter_++);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  // Writes one call; the arrays are named as given.
  std::string Write(const std::string& file, const std::vector<std::pair<std::string, OwnedTensor>>& inputs) const {
    std::vector<NamedArray> arrays;
    for (const auto& [name, t] : inputs) {
      const TensorView v = t.view();
      NamedArray a{name, v.dtype, {v.shape().begin(), v.shape().end()}, {}};
      a.data.assign(t.storage.begin(), t.storage.begin() + static_cast<std::ptrdiff_t>(v.nbytes()));
      arrays.push_back(std::move(a));
    }
    const std::string path = (path_ / file).string();
    const Status s = SaveNpz(path, arrays);
    EXPECT_TRUE(s.ok()) << s.ToString();
    return path;
  }

 private:
  static inline int counter_ = 0;
  std::filesystem::path path_;
};

inline Result<std::vector<OwnedTensor>> RunOnce(const Module& module, std::vector<OwnedTensor> inputs) {
  DT_ASSIGN_OR_RETURN(StateStore states, InitStates(module));
  return Interpret(module, *module.graphs[0], inputs, states);
}

// 10 log10 of signal by noise.
inline double Sqnr(const std::vector<float>& want, const std::vector<float>& got) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    signal += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    noise += std::pow(static_cast<double>(want[i]) - static_cast<double>(got[i]), 2);
  }
  return 10 * std::log10(signal / noise);
}

inline ValueId FindValue(const Graph& g, std::string_view name) {
  for (ValueId v = 0; v < g.num_values(); ++v)
    if (g.value(v).name == name) {
      const NodeId p = g.value(v).producer;
      if (p == kNone || std::find(g.order.begin(), g.order.end(), p) != g.order.end()) return v;
    }
  return kNone;
}

// A module quantized with calls: of the first graph, named input_0 and on, unless they are given names.
struct QuantizedSample {
  Module before, after;
  QuantizeReport report;
  Status status;

  using Call = std::vector<OwnedTensor>;
  QuantizedSample(const std::string& text, const std::string& scheme, const std::vector<Call>& calls, std::vector<std::string> keep_float = {})
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
  // Of the first output, against the float graph.
  double sqnr(const Call& call) const {
    auto want = RunOnce(before, call), got = RunOnce(after, call);
    EXPECT_TRUE(want.ok() && got.ok()) << want.status().ToString() << got.status().ToString();
    return want.ok() && got.ok() ? Sqnr(Values((*want)[0]), Values((*got)[0])) : 0;
  }
};

}  // namespace dovetail::samples
