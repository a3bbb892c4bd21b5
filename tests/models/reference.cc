#include "models/reference.h"

#include <simdjson.h>

#include <cmath>
#include <cstring>

namespace dovetail::testing {
namespace {

DType TypeFromName(std::string_view name) {
  if (name == "BOOL") return DType::kBool;
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return DTypeFromName(lower);
}

std::string Key(std::string_view kind, size_t step, size_t leaf) { return StrCat(kind, ".", step, ".", leaf); }

// Leaves of one step of a kind, in order.
std::vector<size_t> Leaves(const Tensors& reference, std::string_view kind, size_t step) {
  std::vector<size_t> leaves;
  for (size_t leaf = 0; leaf < 64; ++leaf)
    if (reference.contains(Key(kind, step, leaf))) leaves.push_back(leaf);
  return leaves;
}

// Of a float tensor.
double At(const TensorView& t, int64_t i) {
  switch (t.dtype) {
    case DType::kF32: return t.as<float>()[i];
    case DType::kF64: return t.as<double>()[i];
    case DType::kF16: return HalfToFloat(t.as<uint16_t>()[i]);
    case DType::kBF16: return BFloat16ToFloat(t.as<uint16_t>()[i]);
    default: return 0;  // integers are compared by their bytes
  }
}

// The finite values of a tensor, or of one output over all steps.
struct Range {
  double low = INFINITY, high = -INFINITY;

  void Add(const TensorView& t) {
    for (int64_t i = 0; i < t.numel(); ++i) {
      if (!std::isfinite(At(t, i))) continue;
      low = std::min(low, At(t, i));
      high = std::max(high, At(t, i));
    }
  }
  // Of values that are all alike, a hundredth of them: rounding is no error.
  double size() const { return std::max(high - low, std::max(std::abs(low), std::abs(high)) * 1e-2); }
};

Result<double> DifferenceIn(const Range& range, const OwnedTensor& got, const OwnedTensor& want) {
  if (got.type != want.type) return InvalidArgument("it is ", got.type.ToString(), ", expected ", want.type.ToString());
  const TensorView a = got.view(), b = want.view();
  if (!IsFloat(want.type.dtype)) {
    const bool equal = std::memcmp(a.data, b.data, b.nbytes()) == 0;
    return equal ? 0 : INFINITY;
  }
  double worst = 0;
  for (int64_t i = 0; i < b.numel(); ++i) {
    const double x = At(a, i), y = At(b, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    worst = std::isfinite(x - y) ? std::max(worst, std::abs(x - y)) : INFINITY;
  }
  return worst == 0 ? 0 : worst / range.size();
}

}  // namespace

Result<double> Difference(const OwnedTensor& got, const OwnedTensor& want) {
  Range range;
  range.Add(want.view());
  return DifferenceIn(range, got, want);
}

Result<Tensors> ReadSafetensors(const std::string& path) {
  DT_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  const auto bytes = file->bytes();
  uint64_t header = 0;
  if (bytes.size() < 8) return Corrupt(path, " is too short");
  std::memcpy(&header, bytes.data(), 8);
  if (header > bytes.size() - 8) return Corrupt(path, " has a damaged header");
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (parser.parse(reinterpret_cast<const char*>(bytes.data()) + 8, header, true).get(root)) return Corrupt(path, " has a damaged header");
  Tensors tensors;
  for (auto [name, entry] : root) {
    if (name == "__metadata__") continue;
    std::string_view dtype;
    simdjson::dom::array sizes, offsets;
    if (entry["dtype"].get(dtype) || entry["shape"].get(sizes) || entry["data_offsets"].get(offsets)) return Corrupt(path, ": bad entry ", name);
    Shape shape;
    for (auto s : sizes) shape.push_back(int64_t(s));
    OwnedTensor t = OwnedTensor::Make(TensorType(TypeFromName(dtype), shape));
    const uint64_t begin = uint64_t(offsets.at(0)), size = t.view().nbytes();
    if (begin + size > bytes.size() - 8 - header) return Corrupt(path, ": ", name, " reaches past the end");
    if (size > 0) std::memcpy(t.view().data, bytes.data() + 8 + header + begin, size);
    tensors.emplace(std::string(name), std::move(t));
  }
  return tensors;
}

Result<Comparison> CompareWithReference(const Tensors& reference, std::span<const std::string> input_names, const StepFn& run) {
  Comparison comparison;
  std::map<std::string, Range> ranges;  // by "out.LEAF"
  auto range_of = [&](std::string_view kind, size_t leaf) -> Range& { return ranges[StrCat(kind, ".", leaf)]; };
  for (size_t step = 0; !Leaves(reference, "in", step).empty(); ++step)
    for (std::string_view kind : {"out", "mut"})
      for (size_t leaf : Leaves(reference, kind, step)) range_of(kind, leaf).Add(reference.at(Key(kind, step, leaf)).view());
  for (size_t step = 0;; ++step) {
    const std::vector<size_t> in_leaves = Leaves(reference, "in", step);
    if (in_leaves.empty()) break;
    std::vector<OwnedTensor> inputs;
    for (size_t leaf : in_leaves) inputs.push_back(reference.at(Key("in", step, leaf)));
    auto outputs = run(inputs);
    if (!outputs.ok()) return std::move(outputs).status().While(StrCat("running step ", step));
    auto compare = [&](const std::string& name, std::string_view kind, size_t leaf) -> Status {
      auto it = outputs->find(name);
      if (it == outputs->end()) return NotFound("there is no output '", name, "'");
      const std::string key = Key(kind, step, leaf);
      auto difference = DifferenceIn(range_of(kind, leaf), it->second, reference.at(key));
      if (!difference.ok()) return std::move(difference).status().While(StrCat("comparing ", key));
      ++comparison.tensors;
      if (comparison.worst_name.empty() || !(*difference <= comparison.worst)) {
        comparison.worst = *difference;
        comparison.worst_name = key;
      }
      return OkStatus();
    };
    for (size_t leaf : Leaves(reference, "out", step)) DT_RETURN_IF_ERROR(compare(StrCat("output_", leaf), "out", leaf));
    for (size_t leaf : Leaves(reference, "mut", step)) {
      size_t input = 0;
      while (input < in_leaves.size() && in_leaves[input] != leaf) ++input;
      if (input == in_leaves.size() || input >= input_names.size()) return NotFound("no input for mut leaf ", leaf);
      DT_RETURN_IF_ERROR(compare(StrCat("mutated.", input_names[input]), "mut", leaf));
    }
    ++comparison.steps;
  }
  return comparison;
}

Result<Comparison> CompareWithReference(const Module& module, const Tensors& reference) {
  const Graph& graph = *module.graphs[0];
  DT_ASSIGN_OR_RETURN(StateStore states, InitStates(module));
  std::vector<std::string> names;
  for (ValueId v : graph.inputs) names.push_back(graph.value(v).name);
  DT_ASSIGN_OR_RETURN(Comparison comparison, CompareWithReference(reference, names, [&](const std::vector<OwnedTensor>& inputs) -> Result<Tensors> {
                        DT_ASSIGN_OR_RETURN(std::vector<OwnedTensor> outputs, Interpret(module, graph, inputs, states));
                        Tensors named;
                        for (size_t i = 0; i < outputs.size(); ++i) named.emplace(graph.output_names[i], std::move(outputs[i]));
                        return named;
                      }));
  comparison.states = std::move(states);
  return comparison;
}

}  // namespace dovetail::testing
