#include "compile/merge_methods.h"

#include <cstring>
#include <map>

namespace dovetail {
namespace {

bool SameContents(const Constant& a, const Constant& b) {
  if (a.type != b.type || a.data_known != b.data_known) return false;
  if (!a.data_known) return true;
  if (a.contiguous() && b.contiguous()) return a.nbytes() == 0 || std::memcmp(a.bytes().data(), b.bytes().data(), a.nbytes()) == 0;
  std::vector<std::byte> x(a.nbytes()), y(b.nbytes());
  a.CopyTo(x.data());
  b.CopyTo(y.data());
  return x == y;
}

class Merger {
 public:
  Merger(Module& module, Module& other) : module_(module), other_(other) {}

  Status Run() {
    for (const auto& g : other_.graphs)
      if (module_.FindGraph(g->name)) return InvalidArgument("two methods are named '", g->name, "'");
    MergeConstants();
    DT_RETURN_IF_ERROR(MergeStates());
    MergeSymbols();
    const uint32_t first_location = static_cast<uint32_t>(module_.locations.size());
    std::move(other_.locations.begin(), other_.locations.end(), std::back_inserter(module_.locations));
    std::move(other_.files.begin(), other_.files.end(), std::back_inserter(module_.files));
    for (auto& g : other_.graphs) {
      Rename(*g, first_location);
      module_.graphs.push_back(std::move(g));
    }
    return OkStatus();
  }

 private:
  void MergeConstants() {
    std::map<std::string, std::vector<uint32_t>, std::less<>> by_name;
    for (uint32_t i = 0; i < module_.constants.size(); ++i) by_name[module_.constants[i].name].push_back(i);
    for (Constant& c : other_.constants) {
      std::vector<uint32_t>& known = by_name[c.name];
      uint32_t same = kNone;
      for (uint32_t i : known)
        if (SameContents(module_.constants[i], c)) same = i;
      if (same == kNone) {
        same = static_cast<uint32_t>(module_.constants.size());
        std::string name = c.name;
        for (int k = 1; by_name.contains(name) && !by_name[name].empty(); ++k) name = StrCat(c.name, "_", k);
        c.name = name;
        by_name[name].push_back(same);
        module_.constants.push_back(std::move(c));
      }
      constants_.push_back(same);
    }
  }

  Status MergeStates() {
    for (State& s : other_.states) {
      uint32_t index = 0;
      while (index < module_.states.size() && module_.states[index].name != s.name) ++index;
      if (index == module_.states.size()) {
        module_.states.push_back(std::move(s));
      } else if (const State& known = module_.states[index]; known.type != s.type) {
        return InvalidArgument("state '", s.name, "' is ", s.type.ToString(), " in '", other_.source_file, "' but ", known.type.ToString(), " in '",
                               module_.source_file, "'; methods share states by name, so export both models with buffers of one shape");
      } else if (!SameContents(known.initial, s.initial)) {
        return InvalidArgument("state '", s.name, "' starts with other contents in '", other_.source_file, "' than in '", module_.source_file,
                               "'; methods share states by name");
      }
      states_.push_back(index);
    }
    return OkStatus();
  }

  void MergeSymbols() {
    for (const auto& [name, range] : other_.symbols) {
      std::string chosen = name;
      for (int k = 1;; ++k) {
        if (chosen == name || !other_.symbols.contains(chosen)) {
          auto [it, added] = module_.symbols.try_emplace(chosen, range);
          if (added || it->second == range) break;
        }
        chosen = StrCat(name, "_", k);
      }
      if (chosen != name) renamed_[name] = chosen;
    }
  }

  Dim Rename(Dim d) const {
    return d.Substitute([this](std::string_view symbol) -> std::optional<Dim> {
      auto it = renamed_.find(symbol);
      return it == renamed_.end() ? std::nullopt : std::optional(Dim::Symbol(it->second));
    });
  }

  void Rename(Graph& g, uint32_t first_location) const {
    for (NodeId id = 0; id < g.num_nodes(); ++id) {
      Node& n = g.node(id);
      if (n.location != kNone) n.location += first_location;
      if (n.op == OpId::kConst) n.ref = constants_[n.ref];
      if (n.op == OpId::kStateRead || n.op == OpId::kStateWrite) n.ref = states_[n.ref];
      if (renamed_.empty()) continue;
      for (Attr& a : n.attrs) {
        if (Dim* d = a.get<Dim>()) *d = Rename(*d);
        if (auto* list = a.get<std::vector<Dim>>())
          for (Dim& d : *list) d = Rename(d);
      }
    }
    if (renamed_.empty()) return;
    for (ValueId v = 0; v < g.num_values(); ++v) {
      Shape& shape = g.value(v).type.shape;
      for (size_t d = 0; d < shape.rank(); ++d) shape[d] = Rename(shape[d]);
    }
  }

  Module& module_;
  Module& other_;
  std::vector<uint32_t> constants_, states_;  // of `other`, to indices in `module`
  std::map<std::string, std::string, std::less<>> renamed_;
};

}  // namespace

Status MergeMethods(Module& module, Module other) { return Merger(module, other).Run(); }

}  // namespace dovetail
