#include "compile/compile.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "backends/qnn/backend.h"
#include "backends/xnnpack/backend.h"
#include "compile/emit.h"
#include "compile/lower_states.h"
#include "compile/memory_sampler.h"
#include "compile/merge_methods.h"
#include "import/import.h"
#include "ir/verifier.h"
#include "passes/passes.h"
#include "quant/stored_layers.h"

namespace dovetail {
namespace {

struct Backends {
  std::vector<const Backend*> order;
  std::vector<std::unique_ptr<Backend>> owned;
};

Result<Backends> FindBackends(const CompileOptions& options) {
  Backends backends;
  if (!options.qnn_soc.empty() && std::find(options.backends.begin(), options.backends.end(), "qnn") == options.backends.end())
    return WrongUsage("--soc ", options.qnn_soc, " is for the backend qnn, which is not asked for: --backend qnn,cpu");
  constexpr std::string_view kThereAre = "there are xnnpack, qnn and cpu";
  if (options.backends.empty()) return WrongUsage("--backend names no backend; ", kThereAre);
  for (auto it = options.backends.begin(); it != options.backends.end(); ++it) {
    const std::string& name = *it;
    if (std::find(options.backends.begin(), it, name) != it) return WrongUsage("--backend names '", name, "' twice");
    if (name == "xnnpack") {
      backends.order.push_back(&XnnpackBackend());
    } else if (name == "qnn") {
      if (options.qnn_soc.empty()) return WrongUsage("the backend qnn needs --soc, the chip to compile for: ", qnn::ListSocs());
      DT_ASSIGN_OR_RETURN(const qnn::Soc* soc, qnn::FindSoc(options.qnn_soc));
      DT_ASSIGN_OR_RETURN(const qnn::Library* library, qnn::Library::Open(options.qnn_library));
      DT_ASSIGN_OR_RETURN(std::shared_ptr<qnn::Device> device, qnn::Device::Create(*library, *soc));
      backends.owned.push_back(std::make_unique<Backend>(MakeQnnBackend(std::move(device), !options.qnn_separate_weights)));
      backends.order.push_back(backends.owned.back().get());
    } else if (name != "cpu") {
      return WrongUsage("unknown backend '", name, "'; ", kThereAre);
    }
  }
  return backends;
}

void CountGraph(const Module& module, const Graph& graph, bool delegated, CompileReport& report) {
  for (NodeId id : graph.order) {
    const Node& n = graph.node(id);
    if (n.region) CountGraph(module, *n.region->body, true, report);
    const bool linear = n.op == OpId::kLinear || n.op == OpId::kQuantizedLinear;
    const bool convolution = n.op == OpId::kConvolution || n.op == OpId::kQuantizedConvolution;
    if (!IsProduct(n.op)) continue;
    const TensorType& out = graph.type(n.results[0]);
    Dim macs = out.shape.numel();
    if (convolution) {
      const Shape& w = graph.type(GetOperand(n, "weight")).shape;
      macs = macs * Dim::FloorDiv(w.numel(), w[0]);
    } else {
      macs = macs * graph.type(n.operands[0]).shape.back();
    }
    const uint64_t count = static_cast<uint64_t>(macs.Bounds(module.symbols).max);
    report.macs_total += count;
    if (delegated) report.macs_delegated += count;
    if (linear) {
      ++report.linears_total;
      report.linears_quantized += n.op == OpId::kQuantizedLinear;
      report.linears_delegated += delegated;
    }
  }
}

// Writing replaces the file of that name: it must not be a device, a folder, or what is being compiled.
Status CheckOutput(const std::string& output, const std::string& input, const CompileOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(output, error) && !fs::is_regular_file(output, error)) return InvalidArgument("cannot write '", output, "': it is not a regular file");
  bool is_input = fs::equivalent(output, input, error);
  for (const auto& [name, path] : options.methods) is_input |= fs::equivalent(output, path, error);
  if (is_input) return InvalidArgument("the output '", output, "' is also the input; write to another file");
  return OkStatus();
}

// What the stock runtime must spell out, making the weights floats anew in each call.
void WarnOfSlowProducts(const Module& module, QuantizeReport& report) {
  size_t products = 0;
  for (const auto& g : module.graphs)
    for (NodeId id : g->order) products += g->node(id).op == OpId::kQuantizedLinear || g->node(id).op == OpId::kQuantizedConvolution;
  if (products)
    report.warnings.push_back(StrCat(products,
                                     " quantized products are outside XNNPACK; the stock ExecuTorch runtime computes their weights in f32 in each call, "
                                     "which is slow and takes memory. --runtime dovetail has kernels for them; of the schemes, int4 and int8-dynamic "
                                     "have XNNPACK's"));
}

// After partitioning.
void WarnOfOtherScheme(const Scheme& scheme, bool npu, CompileReport& report) {
  if (npu == IsForNpu(scheme)) return;
  if (!npu) {
    report.quantize.warnings.push_back(StrCat("the scheme ", scheme.name, " is made for the backend qnn: add --backend qnn,cpu and --soc. Other ",
                                              "backends compute it ", scheme.activations == Activations::kHalf ? "in f32" : "slowly"));
    return;
  }
  std::string names;
  for (const Scheme& s : Schemes())
    if (IsForNpu(s)) names += StrCat(names.empty() ? "" : ", ", s.name);
  const auto& nodes = report.partition.nodes;
  const auto count = [&](bool all) {
    return std::count_if(nodes.begin(), nodes.end(), [&](const Placement& p) { return p.backend == "qnn" || all; });
  };
  report.quantize.warnings.push_back(StrCat("the scheme ", scheme.name, " is not made for the backend qnn, which takes ", count(false), " of ", count(true),
                                            " operators; --quantize with one of ", names, " is the way to run a quantized model there"));
}

bool UsesNpu(const CompileReport& report) {
  const auto& nodes = report.partition.nodes;
  return std::any_of(nodes.begin(), nodes.end(), [](const Placement& p) { return p.backend == "qnn"; });
}

// The user asked for the NPU and gets a program without it.
void WarnOfIdleNpu(CompileReport& report) {
  const auto& nodes = report.partition.nodes;
  if (UsesNpu(report)) return;
  const auto refused = std::find_if(nodes.begin(), nodes.end(), [](const Placement& p) { return p.reason.starts_with("qnn: "); });
  report.quantize.warnings.push_back(
      StrCat("no operator runs on the backend qnn", refused == nodes.end() ? "" : StrCat("; of ", refused->op, ": ", refused->reason.substr(5))));
}

Status RunNamed(std::string_view pass, Module& module) { return RunPass(*FindPass(pass), module); }

Result<Module> Prepare(const std::string& input, const CompileOptions& options, std::span<const Backend* const> backends, CompileReport& report) {
  DT_ASSIGN_OR_RETURN(Module module, ImportAndOptimize(input, options));
  ReportQuantizedLayers(module, report.quantize);  // those that come quantized; they stay as they are
  // Its hardware has no fused operators of ours; the schemes made for it spell them out themselves.
  const bool npu = std::any_of(backends.begin(), backends.end(), [](const Backend* b) { return b->name == "qnn"; });
  if (npu) DT_RETURN_IF_ERROR(RunNamed("spell_out_fused", module));
  if (!options.quantize.scheme && !options.quantize.calibration.empty())
    report.quantize.warnings.push_back("--quantize none needs no calibration; the files of --calibrate were not read");
  if (options.quantize.scheme || options.quantize.int8_states) {
    if (Status s = Quantize(module, options.quantize, report.quantize); !s.ok()) return std::move(s).While(StrCat("quantizing '", input, "'"));
  }
  if (options.stock_runtime) DT_RETURN_IF_ERROR(RunNamed("unroll_recurrent", module));
  DT_RETURN_IF_ERROR(RunNamed(options.stock_runtime ? "additive_masks" : "fuse_quantized_attention", module));
  if (!options.stock_runtime && !npu) DT_RETURN_IF_ERROR(RunNamed("fuse_layer_norm", module));
  DT_ASSIGN_OR_RETURN(report.partition, Partition(module, backends, !options.stock_runtime));
  if (options.quantize.scheme) WarnOfOtherScheme(*options.quantize.scheme, npu, report);
  if (npu) WarnOfIdleNpu(report);
  if (!options.stock_runtime) DT_RETURN_IF_ERROR(RunNamed("attend_by_row", module));
  DT_RETURN_IF_ERROR(RunNamed("expand_quantized", module));
  for (const auto& g : module.graphs) CountGraph(module, *g, false, report);
  if (options.stock_runtime) {
    WarnOfSlowProducts(module, report.quantize);
    DT_RETURN_IF_ERROR(RunNamed("decompose_for_stock", module));
  }
  DT_RETURN_IF_ERROR(Verify(module));
  for (const State& s : module.states) {
    CompiledState info{s.name, std::string(Name(s.type.dtype)), {}, s.initial.nbytes()};
    for (Dim d : s.type.shape.dims()) info.shape.push_back(d.value());
    report.states.push_back(std::move(info));
  }
  return module;
}

struct Built {
  std::unique_ptr<const Module> module;  // whose constants the program borrows
  pte::ProgramDesc program;
};

Result<Built> Build(const std::string& input, const CompileOptions& options, std::span<const Backend* const> backends, CompileReport& report) {
  DT_ASSIGN_OR_RETURN(Module prepared, Prepare(input, options, backends, report));
  auto module = std::make_unique<Module>(std::move(prepared));
  const StateSets before = CollectStates(*module);
  DT_RETURN_IF_ERROR(LowerStates(*module, options.stock_runtime));
  DT_RETURN_IF_ERROR(Verify(*module));
  DT_RETURN_IF_ERROR(CheckStates(before, CollectStates(*module)));
  EmitStats stats;
  const QuantizeOptions& q = options.quantize;
  const QuantizationInfo quantization{q.scheme ? std::string(q.scheme->name) : std::string(), q.int8_states ? "int8" : "", q.keep_float};
  Result<pte::ProgramDesc> program = Emit(*module, {backends, options.stock_runtime, quantization}, stats);
  if (!program.ok()) return std::move(program).status().While(StrCat("compiling '", input, "'"));
  report.planned_bytes = stats.planned_bytes;
  report.planned_lower_bound = stats.planned_lower_bound;
  return Built{std::move(module), std::move(*program)};
}

// Builds anew without the nodes for which a backend could not make its part, unless nothing of that backend would be left.
Result<Built> BuildWithWhatCanBeMade(const std::string& input, const CompileOptions& options, std::span<const Backend* const> backends, CompileReport& report) {
  constexpr int kMostRounds = 8;
  Result<Built> built = Build(input, options, backends, report);
  const auto refuses_more = [&] { return std::any_of(backends.begin(), backends.end(), [](const Backend* b) { return b->refuses_more && b->refuses_more(); }); };
  for (int round = 1; !built.ok() && round < kMostRounds && refuses_more(); ++round) {
    CompileReport again;
    Result<Built> next = Build(input, options, backends, again);
    if (!UsesNpu(again)) break;
    built = std::move(next);
    report = std::move(again);
  }
  const std::string no_graph = StrCat("qnn: ", kNoQnnGraph);
  std::map<std::string, std::pair<size_t, const Placement*>> refused;
  for (const Placement& p : report.partition.nodes)
    if (p.backend != "qnn" && p.reason.starts_with(no_graph)) {
      auto& [count, first] = refused[p.op];
      if (count++ == 0) first = &p;
    }
  for (const auto& [op, nodes] : refused)
    report.quantize.warnings.push_back(StrCat(nodes.first, " x ", op, " outside the NPU, whose library cannot make a graph with it: ", nodes.second->reason.substr(no_graph.size()),
                                              nodes.second->source.empty() ? "" : StrCat("; the first at ", nodes.second->source)));
  return built;
}

}  // namespace

bool IsProduct(OpId op) {
  switch (op) {
    case OpId::kLinear:
    case OpId::kQuantizedLinear:
    case OpId::kConvolution:
    case OpId::kQuantizedConvolution:
    case OpId::kMatmul:
    case OpId::kBmm: return true;
    default: return false;
  }
}

Result<Module> ImportAndOptimize(const std::string& input, const CompileOptions& options) {
  DT_ASSIGN_OR_RETURN(Module module, ImportPt2(input));
  const std::string first = module.graphs[0]->name;
  const auto is_method = [&](const std::string& name) {
    return name == first || std::any_of(options.methods.begin(), options.methods.end(), [&](const auto& m) { return m.first == name; });
  };
  for (const InputShape& s : options.input_shapes)
    if (!s.method.empty() && !is_method(s.method))
      return InvalidArgument("--input-shape ", s.method, ":", s.input, ": there is no --method ", s.method);
  const auto shapes_of = [&](std::string_view method) {
    std::vector<InputShape> shapes;
    for (const InputShape& s : options.input_shapes)
      if ((s.method.empty() ? first : s.method) == method) shapes.push_back(s);
    return shapes;
  };
  DT_RETURN_IF_ERROR(FixShapes(module, shapes_of(first)));
  for (const auto& [name, path] : options.methods) {
    DT_ASSIGN_OR_RETURN(Module method, ImportPt2(path, name));
    DT_RETURN_IF_ERROR(FixShapes(method, shapes_of(name)));
    DT_RETURN_IF_ERROR(MergeMethods(module, std::move(method)));
  }
  DT_RETURN_IF_ERROR(Verify(module));
  for (const Pass& pass : CorePasses())
    if (Status s = RunPass(pass, module); !s.ok()) return std::move(s).While(StrCat("compiling '", input, "'"));
  return module;
}

Result<CompileReport> ExplainFile(const std::string& input, const CompileOptions& options) {
  CompileReport report;
  DT_ASSIGN_OR_RETURN(const Backends backends, FindBackends(options));
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const Module module, Prepare(input, options, backends.order, report));
  return report;
}

Result<CompileReport> CompileFile(const std::string& input, const std::string& output, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  MemorySampler sampler;
  CompileReport report;
  DT_RETURN_IF_ERROR(CheckOutput(output, input, options));
  DT_ASSIGN_OR_RETURN(const Backends backends, FindBackends(options));
  DT_ASSIGN_OR_RETURN(const Built built, BuildWithWhatCanBeMade(input, options, backends.order, report));
  DT_ASSIGN_OR_RETURN(report.output_bytes, pte::WritePte(built.program, output));
  report.peak_anonymous_bytes = sampler.peak();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace dovetail
