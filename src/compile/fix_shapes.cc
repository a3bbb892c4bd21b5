#include "compile/fix_shapes.h"

#include <map>

#include "base/check.h"

namespace dovetail {
namespace {

using Values = std::map<std::string, int64_t, std::less<>>;

Status Take(const Module& module, const Graph& graph, const InputShape& wanted, Values* values) {
  const auto quoted = [&] { return StrCat("--input-shape ", wanted.input); };
  ValueId input = kNone;
  std::string names;
  for (ValueId v : graph.inputs) {
    if (graph.value(v).name == wanted.input) input = v;
    names += StrCat(names.empty() ? "" : ", ", graph.value(v).name);
  }
  if (input == kNone) return InvalidArgument(quoted(), ": method '", graph.name, "' has no such input; it has ", names);
  const Shape& shape = graph.type(input).shape;
  if (shape.rank() != wanted.sizes.size())
    return InvalidArgument(quoted(), ": ", wanted.sizes.size(), " sizes for a tensor of shape [", shape.ToString(), "]");
  for (size_t i = 0; i < shape.rank(); ++i) {
    const int64_t size = wanted.sizes[i];
    if (shape[i].is_constant()) {
      if (shape[i].value() != size) return InvalidArgument(quoted(), ": dim ", i, " was exported as ", shape[i].value(), ", not ", size);
      continue;
    }
    const std::string symbol(shape[i].symbol());
    if (symbol.empty()) return InvalidArgument(quoted(), ": dim ", i, " is ", shape[i].ToString(), ", which follows from other sizes; give those");
    const DimRange range = shape[i].Bounds(module.symbols);
    if (size < range.min || size > range.max)
      return InvalidArgument(quoted(), ": dim ", i, " was exported for sizes from ", range.min, " to ", range.max, ", not ", size);
    const auto [it, added] = values->try_emplace(symbol, size);
    if (!added && it->second != size) return InvalidArgument(quoted(), ": dim ", i, " is the same as one that is ", it->second);
  }
  return OkStatus();
}

}  // namespace

Status FixShapes(Module& module, const std::vector<InputShape>& shapes) {
  if (shapes.empty()) return OkStatus();
  DT_CHECK(module.graphs.size() == 1);
  Graph& graph = *module.graphs[0];
  Values values;
  for (const InputShape& s : shapes) DT_RETURN_IF_ERROR(Take(module, graph, s, &values));
  const auto fixed = [&](Dim d) {
    return d.Substitute([&](std::string_view symbol) -> std::optional<Dim> {
      const auto it = values.find(symbol);
      return it == values.end() ? std::nullopt : std::optional(Dim(it->second));
    });
  };
  for (NodeId id = 0; id < graph.num_nodes(); ++id)
    for (Attr& a : graph.node(id).attrs) {
      if (Dim* d = a.get<Dim>()) *d = fixed(*d);
      if (auto* list = a.get<std::vector<Dim>>())
        for (Dim& d : *list) d = fixed(d);
    }
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    Shape& shape = graph.value(v).type.shape;
    for (size_t d = 0; d < shape.rank(); ++d) shape[d] = fixed(shape[d]);
  }
  for (const auto& [symbol, value] : values) module.symbols.erase(symbol);
  return OkStatus();
}

}  // namespace dovetail
