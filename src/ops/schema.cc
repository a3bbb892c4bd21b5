#include "ops/schema.h"

#include <cctype>
#include <cstdlib>

#include "base/check.h"

namespace dovetail {
namespace {

std::string_view Trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// Splits at commas outside brackets and quotes.
std::vector<std::string_view> SplitTop(std::string_view s) {
  std::vector<std::string_view> parts;
  int depth = 0;
  bool quoted = false;
  size_t start = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\'' || s[i] == '"') quoted = !quoted;
    if (quoted) continue;
    if (s[i] == '[' || s[i] == '(') ++depth;
    if (s[i] == ']' || s[i] == ')') --depth;
    if (s[i] == ',' && depth == 0) {
      parts.push_back(Trim(s.substr(start, i - start)));
      start = i + 1;
    }
  }
  if (!Trim(s.substr(start)).empty()) parts.push_back(Trim(s.substr(start)));
  return parts;
}

Result<ArgKind> KindOf(std::string_view type, bool* optional) {
  const bool outer_optional = type.ends_with('?');
  if (outer_optional) type.remove_suffix(1);
  bool list = false;
  if (type.ends_with(']')) {
    list = true;
    type = type.substr(0, type.rfind('['));
  }
  const bool inner_optional = type.ends_with('?');
  if (inner_optional) type.remove_suffix(1);
  *optional = outer_optional || (inner_optional && !list);
  if (type == "Tensor") {
    if (list) return inner_optional ? ArgKind::kOptionalTensorList : ArgKind::kTensorList;
    return *optional ? ArgKind::kOptionalTensor : ArgKind::kTensor;
  }
  if (type == "int" || type == "SymInt") return list ? ArgKind::kIntList : ArgKind::kInt;
  if (type == "float") return list ? ArgKind::kFloatList : ArgKind::kFloat;
  if (type == "bool") return list ? ArgKind::kBoolList : ArgKind::kBool;
  if (type == "Scalar" && !list) return ArgKind::kScalar;
  if (type == "str" && !list) return ArgKind::kString;
  if (type == "ScalarType" && !list) return ArgKind::kDType;
  if (type == "Layout" || type == "Device" || type == "MemoryFormat" || type == "Generator") return ArgKind::kIgnored;
  return InvalidArgument("unknown argument type '", type, "'");
}

Result<Attr> DefaultOf(ArgKind kind, std::string_view text) {
  const std::string s(text);
  if (text == "None") return Attr();
  if (text == "True" || text == "False") return Attr(text == "True");
  if (kind == ArgKind::kString) return Attr(std::string(text.substr(1, text.size() >= 2 ? text.size() - 2 : 0)));
  if (kind == ArgKind::kIntList) {
    std::vector<Dim> v;
    if (text.starts_with('[') && text.ends_with(']')) {
      for (std::string_view part : SplitTop(text.substr(1, text.size() - 2))) v.push_back(Dim(static_cast<int64_t>(std::atoll(std::string(part).c_str()))));
    } else {
      v.push_back(Dim(static_cast<int64_t>(std::atoll(s.c_str()))));
    }
    return Attr(std::move(v));
  }
  if (kind == ArgKind::kFloat) return Attr(std::atof(s.c_str()));
  if (kind == ArgKind::kInt) return Attr(static_cast<int64_t>(std::atoll(s.c_str())));
  if (kind == ArgKind::kScalar) {
    if (s.find_first_of(".e") != std::string::npos) return Attr(std::atof(s.c_str()));
    return Attr(static_cast<int64_t>(std::atoll(s.c_str())));
  }
  return Attr();
}

}  // namespace

Result<Schema> ParseSchemaChecked(std::string_view text) {
  const size_t open = text.find('('), arrow = text.rfind("->");
  if (open == std::string_view::npos || arrow == std::string_view::npos) return InvalidArgument("'", text, "' is not an operator schema");
  const size_t close = text.rfind(')', arrow);
  if (close == std::string_view::npos || close < open) return InvalidArgument("'", text, "' is not an operator schema");
  Schema schema;
  schema.name = Trim(text.substr(0, open));
  bool keyword_only = false;
  for (std::string_view part : SplitTop(text.substr(open + 1, close - open - 1))) {
    if (part == "*") {
      keyword_only = true;
      continue;
    }
    SchemaArg arg;
    arg.keyword_only = keyword_only;
    std::string_view declaration = part, default_text;
    if (size_t eq = part.find('='); eq != std::string_view::npos) {
      declaration = Trim(part.substr(0, eq));
      default_text = Trim(part.substr(eq + 1));
      arg.has_default = true;
    }
    const size_t space = declaration.rfind(' ');
    if (space == std::string_view::npos) return InvalidArgument("argument '", part, "' of schema '", text, "' has no name");
    arg.name = declaration.substr(space + 1);
    std::string type(Trim(declaration.substr(0, space)));
    if (size_t paren = type.find('('); paren != std::string::npos) {
      arg.written = type.find('!', paren) != std::string::npos;
      const size_t end = type.find(')', paren);
      if (end == std::string::npos) return InvalidArgument("argument '", part, "' of schema '", text, "' is malformed");
      type.erase(paren, end - paren + 1);
    }
    DT_ASSIGN_OR_RETURN(arg.kind, KindOf(type, &arg.optional));
    if (IsTensorKind(arg.kind)) {
      if (IsListOfTensors(arg.kind)) {
        if (schema.list_arg >= 0) return InvalidArgument("schema '", text, "' has two lists of tensors");
        schema.list_arg = static_cast<int>(schema.args.size());
      }
      arg.index = schema.tensor_args++;
    } else {
      if (arg.has_default) {
        DT_ASSIGN_OR_RETURN(arg.default_value, DefaultOf(arg.kind, default_text));
      }
      arg.index = schema.other_args++;
    }
    schema.args.push_back(std::move(arg));
  }
  std::string_view results = Trim(text.substr(arrow + 2));
  if (results.starts_with('(') && results.ends_with(')') && !results.starts_with("()")) results = results.substr(1, results.size() - 2);
  if (results != "()") {
    for (std::string_view part : SplitTop(results)) {
      if (part == "Tensor[]") schema.list_result = true;
      const size_t space = part.rfind(' ');
      schema.results.emplace_back(space == std::string_view::npos ? std::string_view() : part.substr(space + 1));
    }
  }
  return schema;
}

Schema ParseSchema(std::string_view text) {
  Result<Schema> schema = ParseSchemaChecked(text);
  DT_CHECK(schema.ok());
  return std::move(schema).value();
}

const SchemaArg* Schema::Find(std::string_view arg_name) const {
  for (const SchemaArg& a : args)
    if (a.name == arg_name) return &a;
  return nullptr;
}

Schema::Range Schema::OperandsOf(size_t position, size_t operands) const {
  const size_t list_size = list_arg >= 0 ? operands + 1 - static_cast<size_t>(tensor_args) : 0;
  size_t first = static_cast<size_t>(args[position].index);
  if (list_arg >= 0 && position > static_cast<size_t>(list_arg)) first += list_size - 1;
  return {first, static_cast<int>(position) == list_arg ? list_size : 1};
}

}  // namespace dovetail
