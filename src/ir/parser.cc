#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "ir/builder.h"
#include "ir/data_text.h"
#include "ir/lexer.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace dovetail {
namespace {

using text::Lexer;
using text::Token;
using text::TokenKind;

constexpr int64_t kMaxParsedBytes = int64_t{1} << 26;  // data written out in a text form is small
constexpr int kMaxNesting = 8;

// The printer's name of a value that has none.
bool IsNumber(std::string_view name) { return name.find_first_not_of("0123456789") == std::string_view::npos; }

class Parser {
 public:
  Parser(std::string_view source, std::string_view file) : source_(source), lexer_(source), file_(file) {}

  Result<Module> Run() {
    DT_RETURN_IF_ERROR(Bump());
    DT_RETURN_IF_ERROR(ExpectWord("module"));
    DT_RETURN_IF_ERROR(Expect("{"));
    while (!Is("}")) {
      if (token_.kind != TokenKind::kWord) return Error("expected symbol, constant, state or graph");
      const std::string what = token_.text;
      DT_RETURN_IF_ERROR(Bump());
      if (what == "symbol") DT_RETURN_IF_ERROR(Symbol());
      else if (what == "constant" || what == "state") DT_RETURN_IF_ERROR(Data(what == "state"));
      else if (what == "graph") DT_RETURN_IF_ERROR(TopGraph());
      else return Error(StrCat("unknown item '", what, "'"));
    }
    DT_RETURN_IF_ERROR(Expect("}"));
    if (token_.kind != TokenKind::kEnd) return Error("text after the module");
    module_.source_file = file_;
    for (const auto& g : module_.graphs)
      for (NodeId id : g->order) {
        const Node& n = g->node(id);
        if (n.op == OpId::kDelegate) module_.form = std::max(module_.form, Form::kPartitioned);
        if (n.op == OpId::kCopy || n.op == OpId::kIndexPutInplace) module_.form = Form::kPlanned;
      }
    if (Status s = Verify(module_); !s.ok()) return std::move(s).While(StrCat("reading '", file_, "'"));
    return std::move(module_);
  }

 private:
  using Names = std::unordered_map<std::string, ValueId>;

  Status Error(std::string_view message) const { return InvalidArgument(file_, ":", token_.line, ":", token_.column, ": ", message); }
  bool Is(std::string_view s) const { return token_.kind == TokenKind::kSymbol && token_.text == s; }
  Status Bump() {
    DT_ASSIGN_OR_RETURN(token_, lexer_.Next());
    return OkStatus();
  }
  Status Expect(std::string_view s) {
    if (!Is(s)) return Error(StrCat("expected '", s, "'"));
    return Bump();
  }
  Status ExpectWord(std::string_view s) {
    if (token_.kind != TokenKind::kWord || token_.text != s) return Error(StrCat("expected '", s, "'"));
    return Bump();
  }
  // After '@' or '%'.
  Result<std::string> Name(std::string_view sigil) {
    DT_RETURN_IF_ERROR(Expect(sigil));
    if (token_.kind == TokenKind::kEnd || token_.kind == TokenKind::kSymbol) return Error("expected a name");
    std::string name = token_.text;
    DT_RETURN_IF_ERROR(Bump());
    return name;
  }
  Result<int64_t> Integer() {
    const bool negative = Is("-");
    if (negative) DT_RETURN_IF_ERROR(Bump());
    int64_t v = 0;
    auto [end, ec] = std::from_chars(token_.text.data(), token_.text.data() + token_.text.size(), v);
    if (token_.kind != TokenKind::kNumber || ec != std::errc() || end != token_.text.data() + token_.text.size()) return Error("expected an integer");
    DT_RETURN_IF_ERROR(Bump());
    return negative ? -v : v;
  }

  // A dimension expression up to ',' ']' or '}' outside brackets.
  Result<Dim> Dimension() {
    const size_t begin = token_.begin;
    int depth = 0;
    while (token_.kind != TokenKind::kEnd && !(depth == 0 && (Is(",") || Is("]") || Is("}")))) {
      if (Is("(")) ++depth;
      if (Is(")")) --depth;
      DT_RETURN_IF_ERROR(Bump());
    }
    std::string_view s = source_.substr(begin, token_.begin - begin);
    Result<Dim> d = Dim::Parse(s);
    if (!d.ok()) return Error(std::string(d.status().message()));
    return *d;
  }

  Result<TensorType> Type() {
    if (token_.kind != TokenKind::kWord) return Error("expected a type");
    const DType dtype = DTypeFromName(token_.text);
    if (dtype == DType::kNone) return Error(StrCat("unknown dtype '", token_.text, "'"));
    DT_RETURN_IF_ERROR(Bump());
    DT_RETURN_IF_ERROR(Expect("["));
    Shape shape;
    while (!Is("]")) {
      if (shape.rank() == kMaxRank) return Error(StrCat("more than ", kMaxRank, " dimensions"));
      DT_ASSIGN_OR_RETURN(const Dim d, Dimension());
      if (d.is_constant() && d.value() < 0) return Error("a negative size");
      shape.push_back(d);
      if (!Is("]")) DT_RETURN_IF_ERROR(Expect(","));
    }
    DT_RETURN_IF_ERROR(Expect("]"));
    TensorType type(dtype, shape);
    if (Is("{")) DT_RETURN_IF_ERROR(Quantization(type.quant));
    return type;
  }

  // {per_tensor scale=0.1 zero_point=-3}, {per_channel axis=0}, {per_block size=32 bits=4}, {dynamic per_row}
  Status Quantization(QuantParams& quant) {
    DT_RETURN_IF_ERROR(Expect("{"));
    using Kind = QuantParams::Kind;
    const std::string kind = token_.text;
    if (kind == "per_tensor") quant.kind = Kind::kPerTensor;
    else if (kind == "per_channel") quant.kind = Kind::kPerChannel;
    else if (kind == "per_block") quant.kind = Kind::kPerBlock;
    else if (kind == "dynamic") quant.kind = Kind::kDynamic;
    else return Error(StrCat("unknown quantization '", kind, "'"));
    DT_RETURN_IF_ERROR(Bump());
    while (!Is("}")) {
      const std::string field = token_.text;
      DT_RETURN_IF_ERROR(Bump());
      if (field == "per_row") continue;
      DT_RETURN_IF_ERROR(Expect("="));
      const bool negative = Is("-");
      if (negative) DT_RETURN_IF_ERROR(Bump());
      if (token_.kind != TokenKind::kNumber) return Error("expected a number");
      const double magnitude = std::strtod(token_.text.c_str(), nullptr), v = negative ? -magnitude : magnitude;
      DT_RETURN_IF_ERROR(Bump());
      if (field == "scale" && v > 0 && static_cast<float>(v) > 0 && v < 3e38) quant.scale = static_cast<float>(v);
      else if (field == "zero_point" && v >= -65536 && v <= 65536) quant.zero_point = static_cast<int32_t>(v);
      else if (field == "axis" && v >= 0 && v < static_cast<double>(kMaxRank)) quant.axis = static_cast<int16_t>(v);
      else if (field == "size" && v >= 1 && v <= 65536) quant.block = static_cast<int32_t>(v);
      else if (field == "bits" && (v == 4 || v == 8)) quant.bits = static_cast<uint8_t>(v);
      else return Error(StrCat("a quantization with ", field, " = ", FormatDouble(v)));
    }
    if (quant.kind == Kind::kPerTensor && quant.scale == 0) return Error("a per_tensor quantization without a scale");
    return Expect("}");
  }

  Status Symbol() {
    if (token_.kind != TokenKind::kWord) return Error("expected a symbol");
    const std::string name = token_.text;
    DT_RETURN_IF_ERROR(Bump());
    DT_RETURN_IF_ERROR(Expect("="));
    DimRange range;
    DT_ASSIGN_OR_RETURN(range.min, Integer());
    DT_RETURN_IF_ERROR(Expect(".."));
    if (token_.kind == TokenKind::kNumber || Is("-")) {
      DT_ASSIGN_OR_RETURN(range.max, Integer());
    }
    if (range.min > range.max) return Error("an empty range");
    module_.symbols[name] = range;
    return OkStatus();
  }

  Status Data(bool state) {
    DT_ASSIGN_OR_RETURN(const std::string name, Name("@"));
    DT_RETURN_IF_ERROR(Expect(":"));
    DT_ASSIGN_OR_RETURN(const TensorType type, Type());
    if (!type.shape.is_constant()) return Error(StrCat("'", name, "' has a dynamic shape"));
    DT_RETURN_IF_ERROR(Expect("="));
    auto& table = state ? state_names_ : constant_names_;
    if (!table.emplace(name, static_cast<uint32_t>(state ? module_.states.size() : module_.constants.size())).second)
      return Error(StrCat("'", name, "' is defined twice"));
    Constant c;
    c.name = name;
    c.type = type;
    c.stored = type.dtype;
    int64_t numel = 1;
    for (Dim d : type.shape.dims())
      if (__builtin_mul_overflow(numel, d.value(), &numel)) return Error(StrCat("'", name, "' is too large"));
    if (token_.kind == TokenKind::kWord && token_.text == "external") {
      if (numel > (int64_t{1} << 40)) return Error(StrCat("'", name, "' is too large"));
      c.data_known = false;
      c.strides.assign(type.rank(), 0);
      DT_RETURN_IF_ERROR(Bump());
    } else {
      if (numel > kMaxParsedBytes / 8) return Error(StrCat("'", name, "' is too large for a text form"));
      std::vector<std::byte> data(static_cast<size_t>(numel) * ByteSize(type.dtype));
      if (token_.kind == TokenKind::kWord && token_.text == "zeros") DT_RETURN_IF_ERROR(Bump());
      else DT_RETURN_IF_ERROR(Elements(type.dtype, numel, data));
      c = MakeOwnedConstant(name, type, std::move(data));
    }
    if (state) module_.states.push_back({name, type, std::move(c)});
    else module_.constants.push_back(std::move(c));
    return OkStatus();
  }

  Status Elements(DType dtype, int64_t numel, std::vector<std::byte>& data) {
    DT_RETURN_IF_ERROR(Expect("["));
    for (int64_t i = 0; i < numel; ++i) {
      if (i) DT_RETURN_IF_ERROR(Expect(","));
      DT_ASSIGN_OR_RETURN(const Attr a, Value());
      if (!text::PutElement(dtype, a, data.data() + static_cast<size_t>(i) * ByteSize(dtype)))
        return Error(StrCat("'", a.ToString(), "' is no element of a tensor of ", dovetail::Name(dtype)));
    }
    return Expect("]");
  }

  // An attribute value. Integers may be dimension expressions.
  Result<Attr> Value() {
    if (token_.kind == TokenKind::kString) {
      Attr a(token_.text);
      DT_RETURN_IF_ERROR(Bump());
      return a;
    }
    if (Is("[")) return ListValue();
    const size_t begin = token_.begin;
    if (token_.kind == TokenKind::kWord) {
      const std::string w = token_.text;
      Attr a;
      bool word = true;
      if (w == "true" || w == "false") a = Attr(w == "true");
      else if (w == "none") a = Attr();
      else if (w == "inf") a = Attr(std::numeric_limits<double>::infinity());
      else if (w == "nan") a = Attr(std::nan(""));
      else if (DTypeFromName(w) != DType::kNone) a = Attr(DTypeFromName(w));
      else word = false;
      if (word) {
        DT_RETURN_IF_ERROR(Bump());
        return a;
      }
    }
    int depth = 0;
    while (token_.kind != TokenKind::kEnd && !(depth == 0 && (Is(",") || Is("]") || Is("}")))) {
      if (Is("(")) ++depth;
      if (Is(")")) --depth;
      DT_RETURN_IF_ERROR(Bump());
    }
    std::string s(source_.substr(begin, token_.begin - begin));
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.pop_back();
    if (s == "-inf") return Attr(-std::numeric_limits<double>::infinity());
    if (Result<Dim> d = Dim::Parse(s); d.ok()) return Attr(*d);
    double v = 0;
    auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (ec != std::errc() || end != s.data() + s.size()) return Error(StrCat("'", s, "' is not a value"));
    return Attr(v);
  }

  Result<Attr> ListValue() {
    DT_RETURN_IF_ERROR(Expect("["));
    std::vector<Dim> ints;
    std::vector<double> doubles;
    std::vector<bool> bools;
    while (!Is("]")) {
      if (Is("[") || token_.kind == TokenKind::kEnd) return Error("expected a number");
      DT_ASSIGN_OR_RETURN(const Attr a, Value());
      if (const Dim* d = a.get<Dim>()) ints.push_back(*d);
      else if (const double* f = a.get<double>()) doubles.push_back(*f);
      else if (const bool* b = a.get<bool>()) bools.push_back(*b);
      else return Error("a list holds integers, floats or bools");
      if (!Is("]")) DT_RETURN_IF_ERROR(Expect(","));
    }
    DT_RETURN_IF_ERROR(Expect("]"));
    if ((!ints.empty()) + (!doubles.empty()) + (!bools.empty()) > 1) return Error("a list of mixed kinds");
    if (!doubles.empty()) return Attr(std::move(doubles));
    if (!bools.empty()) return Attr(std::move(bools));
    return Attr(std::move(ints));
  }

  Status TopGraph() {
    DT_ASSIGN_OR_RETURN(const std::string name, Name("@"));
    if (module_.FindGraph(name)) return Error(StrCat("graph @", name, " is defined twice"));
    module_.graphs.push_back(std::make_unique<Graph>(name));
    Graph* graph = module_.graphs.back().get();
    return Body(*graph, 0);
  }

  Status Body(Graph& g, int nesting) {
    if (nesting > kMaxNesting) return Error("regions are nested too deeply");
    Names names;
    DT_RETURN_IF_ERROR(Expect("("));
    while (!Is(")")) {
      DT_ASSIGN_OR_RETURN(const std::string name, Name("%"));
      DT_RETURN_IF_ERROR(Expect(":"));
      DT_ASSIGN_OR_RETURN(TensorType type, Type());
      if (!names.emplace(name, static_cast<ValueId>(g.num_values())).second) return Error(StrCat("%", name, " is defined twice"));
      g.AddInput(IsNumber(name) ? "" : name, std::move(type));
      if (!Is(")")) DT_RETURN_IF_ERROR(Expect(","));
    }
    DT_RETURN_IF_ERROR(Expect(")"));
    DT_RETURN_IF_ERROR(Expect("{"));
    while (!(token_.kind == TokenKind::kWord && token_.text == "return")) DT_RETURN_IF_ERROR(NodeLine(g, names, nesting));
    DT_RETURN_IF_ERROR(Bump());
    while (!Is("}")) {
      DT_ASSIGN_OR_RETURN(const ValueId v, Operand(names));
      if (v == kNone) return Error("a graph cannot return nothing in place of a value");
      g.outputs.push_back(v);
      if (!Is("}")) DT_RETURN_IF_ERROR(Expect(","));
    }
    return Expect("}");
  }

  Result<ValueId> Operand(const Names& names) {
    if (token_.kind == TokenKind::kWord && token_.text == "_") {
      DT_RETURN_IF_ERROR(Bump());
      return kNone;
    }
    DT_ASSIGN_OR_RETURN(const std::string name, Name("%"));
    auto it = names.find(name);
    if (it == names.end()) return Error(StrCat("%", name, " is not defined"));
    return it->second;
  }

  Status NodeLine(Graph& g, Names& names, int nesting) {
    std::vector<std::string> results;
    while (Is("%")) {
      DT_ASSIGN_OR_RETURN(std::string name, Name("%"));
      results.push_back(std::move(name));
      if (Is(",")) DT_RETURN_IF_ERROR(Bump());
      else break;
    }
    if (!results.empty()) DT_RETURN_IF_ERROR(Expect("="));
    if (token_.kind != TokenKind::kWord) return Error("expected an operator");
    const OpId op = FindOp(token_.text);
    if (op == OpId::kCount) return Error(StrCat("unknown operator '", token_.text, "'"));
    DT_RETURN_IF_ERROR(Bump());
    const NodeId id = g.AddNode(op);
    if (op == OpId::kConst || op == OpId::kStateRead || op == OpId::kStateWrite) {
      DT_ASSIGN_OR_RETURN(const std::string name, Name("@"));
      const auto& table = op == OpId::kConst ? constant_names_ : state_names_;
      auto it = table.find(name);
      if (it == table.end()) return Error(StrCat("@", name, " is not defined"));
      g.node(id).ref = it->second;
      if (Is(",")) DT_RETURN_IF_ERROR(Bump());
    }
    while (Is("%") || (token_.kind == TokenKind::kWord && token_.text == "_")) {
      DT_ASSIGN_OR_RETURN(const ValueId v, Operand(names));
      g.node(id).operands.push_back(v);
      if (!Is(",")) break;
      DT_RETURN_IF_ERROR(Bump());
    }
    std::string backend;
    std::vector<int> aliases(results.size(), -1);
    DT_RETURN_IF_ERROR(Attributes(g, id, backend, aliases));
    if (!results.empty()) {
      DT_RETURN_IF_ERROR(Expect(":"));
      for (size_t i = 0; i < results.size(); ++i) {
        if (i) DT_RETURN_IF_ERROR(Expect(","));
        DT_ASSIGN_OR_RETURN(TensorType type, Type());
        const ValueId v = g.AddResult(id, std::move(type), IsNumber(results[i]) ? "" : results[i]);
        if (!names.emplace(results[i], v).second) return Error(StrCat("%", results[i], " is defined twice"));
      }
    }
    if (op == OpId::kDelegate) {
      auto region = std::make_unique<Region>();
      region->backend = backend;
      region->aliases = std::move(aliases);
      region->body = std::make_unique<Graph>(backend);
      DT_RETURN_IF_ERROR(Body(*region->body, nesting + 1));
      g.node(id).region = std::move(region);
    }
    g.order.push_back(id);
    return OkStatus();
  }

  Status Attributes(Graph& g, NodeId id, std::string& backend, std::vector<int>& aliases) {
    const OpId op = g.node(id).op;
    DT_ASSIGN_OR_RETURN(std::vector<Attr> attrs, FillAttrs(op, {}));
    if (Is("{")) {
      DT_RETURN_IF_ERROR(Bump());
      while (!Is("}")) {
        if (token_.kind != TokenKind::kWord) return Error("expected an attribute");
        const std::string name = token_.text;
        DT_RETURN_IF_ERROR(Bump());
        DT_RETURN_IF_ERROR(Expect("="));
        DT_ASSIGN_OR_RETURN(Attr value, Value());
        if (op == OpId::kDelegate) {
          if (name == "backend" && value.is<std::string>()) backend = *value.get<std::string>();
          else if (name == "aliases" && value.Dims().size() == aliases.size())
            for (size_t i = 0; i < aliases.size(); ++i) {
              const int64_t operand = value.Dims()[i].constant().value_or(-1);
              aliases[i] = static_cast<int>(std::clamp<int64_t>(operand, -1, 1 << 20));
            }
          else return Error(StrCat("unknown attribute '", name, "' of a delegate"));
        } else {
          const SchemaArg* arg = GetSchema(op).Find(name);
          if (!arg || IsTensorKind(arg->kind)) return Error(StrCat("operator ", GetOp(op).name, " has no attribute '", name, "'"));
          if (arg->kind == ArgKind::kBoolList && value.is<std::vector<Dim>>() && value.Dims().empty()) value = Attr(std::vector<bool>());
          if (arg->kind == ArgKind::kFloatList && value.is<std::vector<Dim>>() && value.Dims().empty()) value = Attr(std::vector<double>());
          attrs[static_cast<size_t>(arg->index)] = std::move(value);
        }
        if (!Is("}")) DT_RETURN_IF_ERROR(Expect(","));
      }
      DT_RETURN_IF_ERROR(Bump());
    }
    g.node(id).attrs = std::move(attrs);
    return OkStatus();
  }

  std::string_view source_;
  Lexer lexer_;
  std::string file_;
  Token token_;
  Module module_;
  std::unordered_map<std::string, uint32_t> constant_names_, state_names_;
};

}  // namespace

Result<Module> Parse(std::string_view text, std::string_view file_name) { return Parser(text, file_name).Run(); }

}  // namespace dovetail
