#include <cstdio>
#include <map>
#include <memory>

#include "cli/cli.h"
#include "cli/inspect_qnn.h"
#include "cli/load_program.h"
#include "cli/weights_of.h"
#include "dovetail/program.h"
#include "format/pte_reader.h"
#include "import/import.h"
#include "ir/text.h"

namespace dovetail::cli {
namespace {

using Json = nlohmann::ordered_json;

// In the order in which it is printed.
Json EmptyReport() {
  Json j;
  for (const char* key : {"inputs", "outputs", "states", "methods", "operators", "delegates", "weights"}) j[key] = Json::array();
  return j;
}

Json InspectModule(const Module& module) {
  Json j = EmptyReport();
  std::map<std::string, size_t> operators;
  for (const auto& g : module.graphs) {
    j["methods"].push_back(g->name);
    for (ValueId v : g->inputs) j["inputs"].push_back({{"name", g->value(v).name}, {"type", g->type(v).ToString()}});
    for (size_t i = 0; i < g->outputs.size(); ++i)
      j["outputs"].push_back({{"name", i < g->output_names.size() ? g->output_names[i] : StrCat("output_", i)}, {"type", g->type(g->outputs[i]).ToString()}});
    for (NodeId id : g->order) ++operators[std::string(GetOp(g->node(id).op).name)];
  }
  for (const auto& [name, count] : operators) j["operators"].push_back({{"name", name}, {"count", count}});
  for (const State& s : module.states) j["states"].push_back({{"name", s.name}, {"type", s.type.ToString()}, {"bytes", s.initial.nbytes()}});
  std::map<std::string, std::pair<size_t, size_t>> weights;
  for (const Constant& c : module.constants) {
    auto& [count, bytes] = weights[std::string(Name(c.type.dtype))];
    ++count;
    bytes += c.nbytes();
  }
  for (const auto& [dtype, total] : weights) j["weights"].push_back({{"dtype", dtype}, {"count", total.first}, {"bytes", total.second}});
  return j;
}

Result<Json> InspectProgram(const Program& program) {
  Json j = EmptyReport();
  for (const MethodInfo& m : program.methods()) {
    j["methods"].push_back({{"name", m.name}, {"planned_bytes", m.planned_bytes}, {"instructions", m.instructions}});
    const auto add = [&](const char* key, Json item) {
      if (program.methods().size() > 1) item["method"] = m.name;
      j[key].push_back(std::move(item));
    };
    for (const TensorInfo& t : m.inputs) add("inputs", {{"name", t.name}, {"type", t.type.ToString()}, {"max_sizes", t.max_sizes}});
    for (const TensorInfo& t : m.outputs) add("outputs", {{"name", t.name}, {"type", t.type.ToString()}, {"max_sizes", t.max_sizes}});
    for (const OperatorInfo& o : m.operators) add("operators", {{"name", o.name}, {"count", o.calls}, {"supported", o.supported}});
    for (const DelegateInfo& d : m.delegates) add("delegates", {{"id", d.id}, {"bytes", d.bytes}, {"calls", d.calls}});
  }
  for (const StateInfo& s : program.states()) j["states"].push_back({{"name", s.name}, {"dtype", Name(s.dtype)}, {"shape", s.sizes}, {"bytes", s.bytes}});
  for (const auto& [dtype, total] : WeightsOf(program.view())) j["weights"].push_back({{"dtype", dtype}, {"count", total.count}, {"bytes", total.bytes}});
  DT_ASSIGN_OR_RETURN(Json binaries, InspectQnn(program));
  if (!binaries.empty()) j["qnn_binaries"] = std::move(binaries);
  return j;
}

void PrintText(const Json& j) {
  for (const auto& [key, items] : j.items()) {
    std::printf("%s (%zu)\n", key.c_str(), items.size());
    for (const Json& item : items) {
      std::string line;
      if (item.is_object())
        for (const auto& [name, value] : item.items())
          line += StrCat(line.empty() ? "" : "  ", name, "=", value.is_string() ? value.get<std::string>() : value.dump());
      else line = item.is_string() ? item.get<std::string>() : item.dump();
      std::printf("  %s\n", line.c_str());
    }
  }
}

Status Inspect(const std::string& file, bool graph, bool verify, bool json, const QnnFlags& qnn) {
  Json j;
  if (verify && !file.ends_with(".pte")) return InvalidArgument("--verify checks a compiled program (.pte), which '", file, "' is not");
  if (file.ends_with(".pte")) {
    if (graph) return InvalidArgument("--graph prints the text form of a .pt2; '", file, "' is a compiled program");
    DT_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, Program::Load(file, {}, qnn.options));
    if (verify) {
      if (!program->view().has_hashes()) return Unsupported("'", file, "' has no hashes to compare with: another program or an older Dovetail made it");
      DT_RETURN_IF_ERROR(program->CheckAll());
    }
    DT_ASSIGN_OR_RETURN(j, InspectProgram(*program));
  } else {
    DT_ASSIGN_OR_RETURN(const Module module, ImportPt2(file));
    if (graph) {
      if (json) PrintJson({{"graph", Print(module)}});
      else std::fputs(Print(module).c_str(), stdout);
      return OkStatus();
    }
    j = InspectModule(module);
  }
  if (json) PrintJson(j);
  else PrintText(j);
  return OkStatus();
}

}  // namespace

void AddInspect(Context& context) {
  auto file = std::make_shared<std::string>();
  auto graph = std::make_shared<bool>(false);
  auto verify = std::make_shared<bool>(false);
  auto qnn = std::make_shared<QnnFlags>();
  CLI::App* verb = AddVerb(context, "inspect", "tells what is in a .pt2 or .pte",
                           [file, graph, verify, qnn, &context] { return Inspect(*file, *graph, *verify, context.json, *qnn); });
  verb->add_option("FILE", *file, "a .pt2 or .pte file")->required();
  verb->add_flag("--graph", *graph, "print the text form of the IR");
  verb->add_flag("--verify", *verify, "read all of a .pte and fail if a part is not what the compiler wrote");
  qnn->AddLibraryTo(verb);
}

}  // namespace dovetail::cli
