// The importer of one exported graph.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "import/call.h"

namespace dovetail::pt2 {

class Importer {
 public:
  Importer(const Archive& archive, Module& module, Graph& graph)
      : archive_(archive), program_(archive.program()), module_(module), graph_(graph), builder_(module, graph), aliases_(module, graph, builder_),
        context_{module, graph, builder_, archive.program(), aliases_} {}

  // Fills the graph, and the module's constants, states, symbols and locations.
  Status Run();

 private:
  struct Problem {
    Status status;
    std::string key;
    size_t count = 1;
  };

  Status BindInputs();
  Status BindUserInput(const InputSpec& spec, size_t index);
  Status BindSymbols();
  void ImportNode(const FxNode& node);
  void ImportItem(const FxNode& node, Call& call);
  Status BindResults(const FxNode& node, const Call& call);
  Status CheckType(std::string_view name, TensorId t) const;
  Status BindOutputs();
  Status WriteMutation(const OutputSpec& spec, ValueId value);
  Result<TensorId> FindTensor(const Arg& arg, std::string_view what) const;
  uint32_t LocationOf(const FxNode& node);
  // Equal problems at one source line are counted, not repeated.
  void Report(Status status, const FxNode& node);
  Status TakeProblems();

  const Archive& archive_;
  const ExportedProgram& program_;
  Module& module_;
  Graph& graph_;
  Builder builder_;
  AliasTable aliases_;
  ImportContext context_;
  std::unordered_map<std::string_view, TensorId> targets_;  // of mutations: stored tensors and inputs by their signature's name
  std::unordered_map<std::string, uint32_t> locations_;
  std::vector<Problem> problems_;
  std::unordered_map<std::string, size_t> problem_index_;
};

}  // namespace dovetail::pt2
