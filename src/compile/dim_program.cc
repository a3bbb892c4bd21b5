#include "compile/dim_program.h"

#include <cctype>

namespace dovetail {
namespace {

// The canonical text of a Dim is the expression to compute: a sum of products of symbols and calls.
struct Walker {
  std::string_view text;
  const DimEmitter& emit;
  size_t pos = 0;

  bool Eat(char c) {
    if (pos >= text.size() || text[pos] != c) return false;
    ++pos;
    return true;
  }
  Result<int32_t> Sum() {
    int32_t value;
    if (Eat('-')) {
      DT_ASSIGN_OR_RETURN(const int32_t first, Product());
      value = emit.binary("sub", emit.constant(0), first);
    } else {
      DT_ASSIGN_OR_RETURN(value, Product());
    }
    while (pos < text.size() && (text[pos] == '+' || text[pos] == '-')) {
      const bool plus = text[pos++] == '+';
      DT_ASSIGN_OR_RETURN(const int32_t next, Product());
      value = emit.binary(plus ? "add" : "sub", value, next);
    }
    return value;
  }
  Result<int32_t> Product() {
    DT_ASSIGN_OR_RETURN(int32_t value, Primary());
    while (Eat('*')) {
      DT_ASSIGN_OR_RETURN(const int32_t next, Primary());
      value = emit.binary("mul", value, next);
    }
    return value;
  }
  Result<int32_t> Primary() {
    const size_t start = pos;
    while (pos < text.size() && (std::isalnum(static_cast<unsigned char>(text[pos])) || text[pos] == '_')) ++pos;
    const std::string_view word = text.substr(start, pos - start);
    if (!word.empty() && std::isdigit(static_cast<unsigned char>(word[0]))) {
      DT_ASSIGN_OR_RETURN(const Dim d, Dim::Parse(word));
      return emit.constant(d.value());
    }
    if (!Eat('(')) return emit.symbol(word);
    DT_ASSIGN_OR_RETURN(const int32_t a, Sum());
    if (!Eat(',')) return Internal("dimension '", text, "' is malformed");
    DT_ASSIGN_OR_RETURN(const int32_t b, Sum());
    if (!Eat(')')) return Internal("dimension '", text, "' is malformed");
    return emit.binary(word == "min" ? "sym_min" : word == "max" ? "sym_max" : word, a, b);
  }
};

}  // namespace

Result<int32_t> DimProgram::Emit(Dim d) {
  const std::string text = d.ToString();
  if (auto it = known_.find(text); it != known_.end()) return it->second;
  Walker walker{text, emitter_};
  DT_ASSIGN_OR_RETURN(const int32_t value, walker.Sum());
  known_[text] = value;
  return value;
}

}  // namespace dovetail
