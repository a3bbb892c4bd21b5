#include <cstring>
#include <unordered_map>

#include "ir/text.h"

namespace dovetail {
namespace {

constexpr int64_t kPrintedElements = 32;  // longer data is `external`

std::string Escape(const std::string& name) {
  bool plain = !name.empty();
  for (char c : name) plain = plain && (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.');
  return plain ? name : Attr(name).ToString();
}

template <class T>
std::string Elements(const std::byte* data, int64_t n, std::string (*text)(T)) {
  std::string s = "[";
  for (int64_t i = 0; i < n; ++i) {
    T v;
    std::memcpy(&v, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    if (i) s += ',';
    s += text(v);
  }
  return s + "]";
}

std::string FloatText(float v) {
  // Shortest text of the float, with a dot.
  std::string s = FormatDouble(v);
  for (int precision = 1; precision <= 9; ++precision) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.*g", precision, static_cast<double>(v));
    if (std::strtof(buffer, nullptr) == v) {
      s = buffer;
      if (s.find_first_of(".en") == std::string::npos) s += ".0";
      break;
    }
  }
  return s;
}

std::string DataText(const Constant& c) {
  if (!c.data_known) return "external";
  const int64_t n = c.type.shape.numel().value();
  if (c.nbytes() > (size_t{1} << 20)) return "external";
  std::vector<std::byte> bytes(c.nbytes());
  c.CopyTo(bytes.data());
  bool zero = n > 0;
  for (std::byte b : bytes) zero = zero && b == std::byte{0};
  if (zero && n > 1) return "zeros";
  if (n > kPrintedElements) return "external";
  switch (c.type.dtype) {
    case DType::kF32: return Elements<float>(bytes.data(), n, FloatText);
    case DType::kF64: return Elements<double>(bytes.data(), n, FormatDouble);
    case DType::kI64: return Elements<int64_t>(bytes.data(), n, [](int64_t v) { return std::to_string(v); });
    case DType::kI32: return Elements<int32_t>(bytes.data(), n, [](int32_t v) { return std::to_string(v); });
    case DType::kI8: return Elements<int8_t>(bytes.data(), n, [](int8_t v) { return std::to_string(v); });
    case DType::kU8: return Elements<uint8_t>(bytes.data(), n, [](uint8_t v) { return std::to_string(v); });
    case DType::kBool: return Elements<uint8_t>(bytes.data(), n, [](uint8_t v) { return std::string(v ? "true" : "false"); });
    default: return "external";
  }
}

class Printer {
 public:
  explicit Printer(const Module& module) : module_(module) {}

  std::string Run() {
    out_ = "module {\n";
    for (const auto& [name, range] : module_.symbols)
      out_ += StrCat("  symbol ", name, " = ", range.min, "..", range.max == DimRange::kUnbounded ? "" : std::to_string(range.max), "\n");
    for (const Constant& c : module_.constants) out_ += StrCat("  constant @", Escape(c.name), " : ", c.type.ToString(), " = ", DataText(c), "\n");
    for (const State& s : module_.states) out_ += StrCat("  state @", Escape(s.name), " : ", s.type.ToString(), " = ", DataText(s.initial), "\n");
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
      std::string name = g.value(v).name.empty() ? std::to_string(next++) : Escape(g.value(v).name);
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
