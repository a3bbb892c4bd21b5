#include "quant/compensate.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/interpreter.h"
#include "quant/calibration.h"
#include "quant/gptq.h"
#include "quant/kernel_run.h"
#include "quant/layers.h"

namespace dovetail {
namespace {

constexpr size_t kMomentBytes = size_t{128} << 20;

using Input = std::pair<size_t, ValueId>;  // graph, value

struct Target {
  uint32_t weight = kNone;
  std::vector<Input> inputs;  // a tied weight has several
  std::string path;
};

// The weights in blocks, in order of their first use.
std::vector<Target> FindTargets(const Module& module, const QuantizeOptions& options, WeightQuantizer& weights) {
  std::vector<Target> targets;
  std::map<const void*, size_t> known;
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    const Graph& graph = *module.graphs[g];
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if ((n.op != OpId::kLinear && n.op != OpId::kMatmul) || graph.type(n.results[0]).dtype != DType::kF32) continue;
      const Node* constant = graph.producer_if(n.operands[1], OpId::kConst);
      if (!constant || module.constants[constant->ref].type.rank() != 2 || !module.constants[constant->ref].data_known) continue;
      std::string path = LayerPath(module, graph, n);
      if (KeptFloat(options, path)) continue;
      const uint32_t weight = n.op == OpId::kMatmul ? weights.Transposed(constant->ref) : constant->ref;
      const int64_t columns = module.constants[weight].type.shape[1].value();
      if (columns == 0 || columns % options.scheme->block != 0 || weights.stays_at_8_bits(weight)) continue;
      const auto [it, inserted] = known.try_emplace(module.constants[weight].identity(), targets.size());
      if (inserted) targets.push_back({weight, {}, std::move(path)});
      targets[it->second].inputs.emplace_back(g, n.operands[0]);
    }
  }
  return targets;
}

class Rounding {
 public:
  Rounding(const Module& module, std::span<const std::string> files, const ProgressFn& progress) : module_(module), files_(files), progress_(progress) {}
  struct pthreadpool* pool() const { return run_.pool(); }

  // The moments of these inputs over all calls.
  Result<std::map<Input, InputMoments>> Gather(const std::set<Input>& inputs, size_t part, size_t parts) {
    std::map<Input, InputMoments> moments;
    for (const Input& i : inputs) moments.emplace(i, InputMoments(module_.graphs[i.first]->type(i.second).shape.back().value()));
    DT_ASSIGN_OR_RETURN(StateStore states, InitStates(module_));
    for (size_t f = 0; f < files_.size(); ++f) {
      DT_ASSIGN_OR_RETURN(CalibrationCall call, LoadCall(module_, files_[f]));
      const auto see = [&](ValueId v, const OwnedTensor& t) {
        const auto it = moments.find({call.graph, v});
        if (it == moments.end()) return;
        const int64_t width = it->second.width();
        it->second.Add(t.view().as<float>(), width ? t.view().numel() / width : 0, pool());
      };
      const Graph& graph = *module_.graphs[call.graph];
      for (size_t i = 0; i < graph.inputs.size(); ++i)
        if (call.inputs[i].type.dtype == DType::kF32) see(graph.inputs[i], call.inputs[i]);
      Result<std::vector<OwnedTensor>> outputs = Interpret(module_, graph, call.inputs, states, run_.With([&](const Graph&, ValueId v, const OwnedTensor& t) { see(v, t); }));
      if (!outputs.ok()) return std::move(outputs).status().While(StrCat("calibrating on '", files_[f], "'"));
      if (progress_) progress_("calibrating", part * files_.size() + f + 1, parts * files_.size());
    }
    return moments;
  }

 private:
  const Module& module_;
  std::span<const std::string> files_;
  const ProgressFn& progress_;
  KernelRun run_;
};

// Targets whose moments fit into memory together, in order.
std::vector<std::vector<const Target*>> Cut(const Module& module, const std::vector<Target>& targets) {
  std::vector<std::vector<const Target*>> parts;
  std::set<Input> inputs;
  size_t bytes = 0;
  for (const Target& t : targets) {
    const size_t width = static_cast<size_t>(module.constants[t.weight].type.shape[1].value()), each = width * width * sizeof(float);
    size_t more = 0;
    for (const Input& i : t.inputs) more += inputs.contains(i) ? 0 : each;
    if (parts.empty() || bytes + more > kMomentBytes) {
      parts.emplace_back();
      inputs.clear();
      bytes = 0;
      more = each * t.inputs.size();
    }
    bytes += more;
    inputs.insert(t.inputs.begin(), t.inputs.end());
    parts.back().push_back(&t);
  }
  return parts;
}

}  // namespace

Status RoundWeightsOnCalls(Module& module, const QuantizeOptions& options, std::span<const std::string> files, WeightQuantizer& weights, QuantizeReport& report) {
  const std::vector<Target> targets = FindTargets(module, options, weights);
  const std::vector<std::vector<const Target*>> parts = Cut(module, targets);
  Rounding rounding(module, files, options.progress);
  const BlockScales kind = options.scheme->activations == Activations::kFixed ? BlockScales::kExpanded : BlockScales::kFree;
  std::string unseen;
  size_t done = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    std::set<Input> inputs;
    for (const Target* t : parts[p]) inputs.insert(t->inputs.begin(), t->inputs.end());
    DT_ASSIGN_OR_RETURN(const auto moments, rounding.Gather(inputs, p, parts.size()));
    std::map<std::vector<Input>, Compensation> compensations;  // linears that share an input share its factor
    for (const Target* t : parts[p]) {
      InputMoments sum(module.constants[t->weight].type.shape[1].value());
      for (const Input& i : t->inputs) sum.Merge(moments.at(i));
      ++done;
      if (sum.rows() == 0) {
        unseen += StrCat(unseen.empty() ? "" : ", ", t->path);
        continue;
      }
      DT_RETURN_IF_ERROR(weights.CheckFinite(t->weight));
      auto it = compensations.find(t->inputs);
      if (it == compensations.end()) {
        compensations.clear();  // of the layers before
        it = compensations.emplace(t->inputs, Compensation(sum)).first;
      }
      const int block = options.scheme->block;
      weights.SetPerBlock(t->weight, block, RoundCompensating(module.constants[t->weight], block, it->second, rounding.pool(), kind));
      if (options.progress) options.progress("rounding weights", done, targets.size());
    }
  }
  if (!unseen.empty()) report.warnings.push_back("no calibration call reached these layers, whose weights are rounded to nearest: " + unseen);
  return OkStatus();
}

}  // namespace dovetail
