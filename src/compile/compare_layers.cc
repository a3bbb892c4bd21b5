#include "compile/compare_layers.h"

#include <algorithm>
#include <map>

#include "quant/calibration.h"
#include "quant/kernel_run.h"
#include "quant/layers.h"

namespace dovetail {
namespace {

bool IsLayer(const Module& module, const Graph& graph, const Node& n) {
  switch (n.op) {
    case OpId::kLinear:
    case OpId::kConvolution:
    case OpId::kEmbedding: return true;
    case OpId::kMatmul: return GetConstant(module, graph, n.operands[1]) != nullptr;
    default: return false;
  }
}

// A layer's result; where a clamp alone takes it, the clamp's, since integers need not reach beyond it.
ValueId ResultOf(const Graph& graph, const Node& n, const std::vector<std::vector<NodeId>>& users) {
  if (users[n.results[0]].size() != 1) return n.results[0];
  const Node& user = graph.node(users[n.results[0]][0]);
  const bool clamps = user.op == OpId::kRelu || user.op == OpId::kHardtanh || user.op == OpId::kClamp;
  return clamps ? user.results[0] : n.results[0];
}

std::span<const float> FloatsOf(const OwnedTensor& t) { return {t.view().as<float>(), static_cast<size_t>(t.view().numel())}; }

class Comparing {
 public:
  Comparing(const Module& real, const Module& quantized, std::span<const LayerReport> reports) : real_(real), quantized_(quantized) {
    // Quantizing keeps the names of the values it replaces.
    std::map<std::string, const LayerReport*> by_path;
    for (const LayerReport& r : reports) by_path.emplace(r.path + " " + r.op, &r);
    for (size_t g = 0; g < real.graphs.size(); ++g) {
      const Graph& graph = *real.graphs[g];
      const std::vector<std::vector<NodeId>> users = graph.Users();
      for (NodeId id : graph.order) {
        const Node& n = graph.node(id);
        if (!IsLayer(real, graph, n)) continue;
        const std::string& name = graph.value(ResultOf(graph, n, users)).name;
        if (graph.type(n.results[0]).dtype != DType::kF32 || name.empty()) continue;
        LayerDifference layer{LayerPath(real, graph, n), std::string(GetOp(n.op).name), {}, {}, {}};
        if (const Location* l = real.location(n)) layer.source = l->source;
        if (auto r = by_path.find(layer.path + " " + layer.op); r != by_path.end()) layer.became = r->second->became;
        index_.emplace(std::pair(g, name), layers_.size());
        layers_.push_back(std::move(layer));
      }
    }
  }

  // One call of both; the float model's outputs.
  Result<std::vector<OwnedTensor>> Run(const CalibrationCall& call, StateStore& real_states, StateStore& quantized_states) {
    std::map<std::string, OwnedTensor> wanted;
    InterpretOptions run = run_.With(nullptr);
    run.observer = [&](const Graph& graph, ValueId v, OwnedTensor& t) {
      const std::string& name = graph.value(v).name;
      if (index_.contains({call.graph, name})) wanted[name] = t;
    };
    DT_ASSIGN_OR_RETURN(std::vector<OwnedTensor> outputs, Interpret(real_, *real_.graphs[call.graph], call.inputs, real_states, run));
    if (quantized_.graphs.empty()) return outputs;
    run.observer = [&](const Graph& graph, ValueId v, OwnedTensor& t) {
      const auto layer = index_.find({call.graph, graph.value(v).name});
      if (layer == index_.end()) return;
      const OwnedTensor& want = wanted[graph.value(v).name];
      const OwnedTensor got = t.type.per_tensor() ? Dequantize(t) : t;
      if (got.type.dtype != DType::kF32 || !(got.type.shape == want.type.shape)) return;
      layers_[layer->second].difference.Add(FloatsOf(want), FloatsOf(got));
      t = t.type.per_tensor() ? Quantize(want, t.type) : want;
    };
    DT_RETURN_IF_ERROR(Interpret(quantized_, *quantized_.graphs[call.graph], call.inputs, quantized_states, run).status().Clone());
    return outputs;
  }

  std::vector<LayerDifference> TakeLayers() {
    std::erase_if(layers_, [](const LayerDifference& l) { return l.difference.signal == 0 && l.difference.noise == 0; });
    std::stable_sort(layers_.begin(), layers_.end(),
                     [](const LayerDifference& a, const LayerDifference& b) { return a.difference.sqnr_db() < b.difference.sqnr_db(); });
    return std::move(layers_);
  }

 private:
  const Module &real_, &quantized_;
  KernelRun run_;
  std::vector<LayerDifference> layers_;
  std::map<std::pair<size_t, std::string>, size_t> index_;
};

}  // namespace

void Difference::Add(std::span<const float> want, std::span<const float> result) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double a = static_cast<double>(want[i]), b = static_cast<double>(result[i]);
    if (a == b) {  // infinities that agree too
      if (std::isfinite(a)) {
        signal += a * a;
        product += a * b;
        got += b * b;
      }
      continue;
    }
    if (!std::isfinite(a) || !std::isfinite(b)) {
      finite = finite && std::isnan(a) && std::isnan(b);
      continue;
    }
    signal += a * a;
    got += b * b;
    product += a * b;
    noise += (a - b) * (a - b);
    max_abs_error = std::max(max_abs_error, std::abs(a - b));
  }
}

double Difference::sqnr_db() const {
  if (!finite) return -300;
  if (noise == 0) return 300;
  return signal == 0 ? -300 : std::clamp(10 * std::log10(signal / noise), -300.0, 300.0);
}

double Difference::cosine() const {
  if (signal == 0 && got == 0) return 1;
  return signal == 0 || got == 0 ? 0 : product / std::sqrt(signal * got);
}

Result<LayerComparison> CompareLayers(const std::string& input, const CompileOptions& options, std::span<const std::string> calls) {
  DT_ASSIGN_OR_RETURN(const Module real, ImportAndOptimize(input, options));
  Module quantized;
  QuantizeReport report;
  if (options.quantize.scheme) {
    DT_ASSIGN_OR_RETURN(quantized, ImportAndOptimize(input, options));
    if (Status s = Quantize(quantized, options.quantize, report); !s.ok()) return std::move(s).While(StrCat("quantizing '", input, "' to compare its layers"));
  }
  DT_ASSIGN_OR_RETURN(StateStore real_states, InitStates(real));
  DT_ASSIGN_OR_RETURN(StateStore quantized_states, InitStates(quantized));
  Comparing comparing(real, quantized, report.layers);
  LayerComparison comparison;
  for (const std::string& file : calls) {
    DT_ASSIGN_OR_RETURN(const CalibrationCall call, LoadCall(real, file));
    Result<std::vector<OwnedTensor>> outputs = comparing.Run(call, real_states, quantized_states);
    if (!outputs.ok()) return std::move(outputs).status().While(StrCat("comparing on '", file, "'"));
    comparison.outputs.push_back(*std::move(outputs));
  }
  comparison.layers = comparing.TakeLayers();
  return comparison;
}

}  // namespace dovetail
