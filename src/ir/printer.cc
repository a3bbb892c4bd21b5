#include <cctype>
#include <unordered_map>

#include "ir/data_text.h"
#include "ir/text.h"

namespace dovetail {
namespace {

std::string Escape(const std::string& name) {
  bool plain = !name.empty() && name[0] != '.' && name.find("..") == std::string::npos;
  for (char c : name) plain = plain && (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.');
  return plain ? name : Attr(name).ToString();
}

class Printer {
 public:
  explicit Printer(const Module& module) : module_(module) {}

  std::string Run() {
    out_ = "module {\n";
    for (const auto& [name, range] : module_.symbols)
      out_ += StrCat("  symbol ", name, " = ", range.min, "..", range.max == DimRange::kUnbounded ? "" : std::to_string(range.max), "\n");
    for (const Constant& c : module_.constants) out_ += StrCat("  constant @", Escape(c.name), " : ", c.type.ToString(), " = ", text::DataText(c), "\n");
    for (const State& s : module_.states) out_ += StrCat("  state @", Escape(s.name), " : ", s.type.ToString(), " = ", text::DataText(s.initial), "\n");
    for (const auto& g : module_.graphs) {
      out_ += StrCat("  graph @", Escape(g->name), "(");
      Body(*g, "  ");
    }
    return out_ + "}\n";
  }

 private:
  using Names = std::unordered_map<ValueId, std::string>;

  void Body(const Graph& g, std::string indent) {
    Names names;
    std::unordered_map<std::string, int> taken;
    int next = 0;
    auto define = [&](ValueId v) {
      // A name of digits counts as none: only numbers in order read back as what they are.
      const bool unnamed = g.value(v).name.find_first_not_of("0123456789") == std::string::npos;
      std::string name = unnamed ? std::to_string(next++) : Escape(g.value(v).name);
      if (const int n = taken[name]++; n > 0) {
        std::string base = name;
        if (base.back() == '"') base.pop_back();
        const bool quoted = base.size() != name.size();
        for (int k = n;; ++k) {
          name = StrCat(base, "_", k, quoted ? "\"" : "");
          if (taken[name]++ == 0) break;
        }
      }
      names[v] = "%" + name;
      return names[v];
    };
    auto list = [&](const std::vector<ValueId>& values) {
      std::string s;
      for (ValueId v : values) s += StrCat(s.empty() ? "" : ", ", v == kNone ? std::string("_") : names[v]);
      return s;
    };
    for (size_t i = 0; i < g.inputs.size(); ++i) out_ += StrCat(i ? ", " : "", define(g.inputs[i]), ": ", g.type(g.inputs[i]).ToString());
    out_ += ") {\n";
    for (NodeId id : g.order) {
      const Node& n = g.node(id);
      const OpDef& op = GetOp(n.op);
      const std::string operands = list(n.operands);
      out_ += indent + "  ";
      for (size_t i = 0; i < n.results.size(); ++i) out_ += StrCat(i ? ", " : "", define(n.results[i]));
      if (!n.results.empty()) out_ += " = ";
      out_ += op.name;
      if (n.op == OpId::kConst) out_ += " @" + Escape(module_.constants[n.ref].name);
      if (n.op == OpId::kStateRead || n.op == OpId::kStateWrite) out_ += " @" + Escape(module_.states[n.ref].name) + (operands.empty() ? "" : ",");
      if (!operands.empty()) out_ += " " + operands;
      out_ += Attributes(n);
      for (size_t i = 0; i < n.results.size(); ++i) out_ += StrCat(i ? ", " : " : ", g.type(n.results[i]).ToString());
      if (n.region) {
        out_ += " (";
        Body(*n.region->body, indent + "  ");
      } else {
        out_ += "\n";
      }
    }
    out_ += StrCat(indent, "  return", g.outputs.empty() ? "" : " ", list(g.outputs), "\n", indent, "}\n");
  }

  std::string Attributes(const Node& n) {
    std::string s;
    auto add = [&](std::string_view name, const std::string& value) { s += StrCat(s.empty() ? "" : ", ", name, "=", value); };
    for (const SchemaArg& a : GetSchema(n.op).args)
      if (!IsTensorKind(a.kind) && !(n.attrs[static_cast<size_t>(a.index)] == a.default_value)) add(a.name, n.attrs[static_cast<size_t>(a.index)].ToString());
    if (n.region) {
      add("backend", Attr(n.region->backend).ToString());
      std::string aliases;
      bool any = false;
      for (int alias : n.region->aliases) {
        any |= alias >= 0;
        aliases += StrCat(aliases.empty() ? "" : ",", alias);
      }
      if (any) add("aliases", "[" + aliases + "]");
    }
    return s.empty() ? "" : " {" + s + "}";
  }

  const Module& module_;
  std::string out_;
};

}  // namespace

std::string Print(const Module& module) { return Printer(module).Run(); }

}  // namespace dovetail
