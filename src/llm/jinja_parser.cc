// The statement half of the parser.
#include "llm/jinja_parser.h"

#include "llm/jinja_parse_expr.h"

namespace dovetail::jinja {
namespace {
constexpr int kMaxBlocks = 40;
constexpr size_t kMaxSource = 1 << 20;

using StmtPtr = std::unique_ptr<Stmt>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : p_(std::move(tokens)) {}

  Result<Body> Run() {
    DT_ASSIGN_OR_RETURN(Body body, ParseBody({}));
    if (!p_.At(Token::kEnd)) return LineError(p_.peek().line, "{% ", p_.peek(1).text, " %} closes nothing");
    return body;
  }

 private:
  static bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  // Statements up to a block whose name is one of `ends` (not taken) or the end of the template.
  Result<Body> ParseBody(std::initializer_list<std::string_view> ends) {
    Body body;
    while (!p_.At(Token::kEnd)) {
      if (p_.At(Token::kData)) {
        StmtPtr text = New(StmtKind::kText);
        text->text = p_.Take().text;
        body.push_back(std::move(text));
      } else if (p_.At(Token::kVariableBegin)) {
        StmtPtr output = New(StmtKind::kOutput);
        p_.Take();
        DT_ASSIGN_OR_RETURN(output->expr, p_.Tuple());
        DT_RETURN_IF_ERROR(p_.Expect(Token::kVariableEnd, {}, "}}"));
        body.push_back(std::move(output));
      } else {
        const Token& name = p_.peek(1);
        if (name.kind != Token::kName) return LineError(name.line, "{% needs the name of a statement");
        if (IsOneOf(name.text, ends)) return body;
        if (name.text.starts_with("end") || name.text == "else" || name.text == "elif") {
          return LineError(name.line, "{% ", name.text, " %} has nothing that it belongs to");
        }
        p_.Take();
        if (++blocks_ > kMaxBlocks) return LineError(name.line, "blocks are nested more than ", kMaxBlocks, " deep");
        DT_ASSIGN_OR_RETURN(StmtPtr statement, Statement());
        --blocks_;
        body.push_back(std::move(statement));
      }
    }
    if (ends.size() > 0) return LineError(p_.peek().line, "the template ends before {% ", std::data(ends)[ends.size() - 1], " %}");
    return body;
  }

  StmtPtr New(StmtKind kind) const {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->line = p_.peek().line;
    return s;
  }
  Status BlockEnd() { return p_.Expect(Token::kBlockEnd, {}, "%}"); }
  // `{% name %}`, which is next.
  Status Closing() {
    p_.Take();
    p_.Take();
    return BlockEnd();
  }

  Result<StmtPtr> Statement() {
    const Token name = p_.peek();
    if (name.text == "if") return If();
    if (name.text == "for") return For();
    if (name.text == "set") return Set();
    if (name.text == "macro") return MacroDefinition();
    if (name.text == "filter") return FilterBlock();
    if (name.text == "break" || name.text == "continue") {
      StmtPtr s = New(name.text == "break" ? StmtKind::kBreak : StmtKind::kContinue);
      if (loops_ == 0) return LineError(name.line, "{% ", name.text, " %} outside of a loop");
      p_.Take();
      DT_RETURN_IF_ERROR(BlockEnd());
      return s;
    }
    if (name.text == "generation") {
      StmtPtr s = New(StmtKind::kBlock);
      p_.Take();
      DT_RETURN_IF_ERROR(BlockEnd());
      DT_ASSIGN_OR_RETURN(s->body, ParseBody({"endgeneration"}));
      DT_RETURN_IF_ERROR(Closing());
      return s;
    }
    return LineError(name.line, "the statement {% ", name.text, " %} is not supported (if, for, set, macro, filter, break, continue, ",
                     "raw and generation are)");
  }

  Result<StmtPtr> If() {
    StmtPtr s = New(StmtKind::kIf);
    p_.Take();
    while (true) {
      Branch branch;
      DT_ASSIGN_OR_RETURN(branch.condition, p_.Tuple());
      DT_RETURN_IF_ERROR(BlockEnd());
      DT_ASSIGN_OR_RETURN(branch.body, ParseBody({"elif", "else", "endif"}));
      s->branches.push_back(std::move(branch));
      p_.Take();
      const Token end = p_.Take();
      if (end.text == "elif") continue;
      DT_RETURN_IF_ERROR(BlockEnd());
      if (end.text == "endif") return s;
      Branch otherwise;
      DT_ASSIGN_OR_RETURN(otherwise.body, ParseBody({"endif"}));
      s->branches.push_back(std::move(otherwise));
      DT_RETURN_IF_ERROR(Closing());
      return s;
    }
  }

  Result<std::vector<std::string>> Targets(bool members) {
    std::vector<std::string> targets;
    const bool bracket = p_.Skip(Token::kOperator, "(");
    do {
      if (!p_.At(Token::kName)) return p_.Unexpected("the name of a variable");
      targets.push_back(p_.Take().text);
      if (members && p_.Skip(Token::kOperator, ".")) {
        if (!p_.At(Token::kName)) return p_.Unexpected("a name after '.'");
        targets.back() += "." + p_.Take().text;
      }
    } while (p_.Skip(Token::kOperator, ","));
    if (bracket) DT_RETURN_IF_ERROR(p_.Expect(Token::kOperator, ")", "')'"));
    return targets;
  }

  Result<StmtPtr> For() {
    StmtPtr s = New(StmtKind::kFor);
    p_.Take();
    DT_ASSIGN_OR_RETURN(s->targets, Targets(false));
    DT_RETURN_IF_ERROR(p_.Expect(Token::kName, "in", "'in'"));
    DT_ASSIGN_OR_RETURN(s->expr, p_.Or());
    if (p_.AtOperator(",")) return LineError(p_.peek().line, "put brackets around the list of a for");
    if (p_.Skip(Token::kName, "if")) {
      DT_ASSIGN_OR_RETURN(s->filter, p_.Expression());
    }
    if (p_.AtName("recursive")) return LineError(p_.peek().line, "recursive loops are not supported: use a macro");
    DT_RETURN_IF_ERROR(BlockEnd());
    ++loops_;
    DT_ASSIGN_OR_RETURN(s->body, ParseBody({"else", "endfor"}));
    --loops_;
    if (p_.peek(1).text == "else") {
      DT_RETURN_IF_ERROR(Closing());
      DT_ASSIGN_OR_RETURN(s->otherwise, ParseBody({"endfor"}));
    }
    DT_RETURN_IF_ERROR(Closing());
    return s;
  }

  Result<StmtPtr> Set() {
    StmtPtr s = New(StmtKind::kSet);
    p_.Take();
    DT_ASSIGN_OR_RETURN(s->targets, Targets(true));
    if (p_.Skip(Token::kOperator, "=")) {
      DT_ASSIGN_OR_RETURN(s->expr, p_.Tuple());
      DT_RETURN_IF_ERROR(BlockEnd());
      return s;
    }
    if (s->targets.size() != 1) return p_.Unexpected("'='");
    s->block = true;
    DT_ASSIGN_OR_RETURN(s->expr, p_.Filters(nullptr));
    DT_RETURN_IF_ERROR(BlockEnd());
    DT_ASSIGN_OR_RETURN(s->body, ParseBody({"endset"}));
    DT_RETURN_IF_ERROR(Closing());
    return s;
  }

  Result<StmtPtr> MacroDefinition() {
    StmtPtr s = New(StmtKind::kMacro);
    p_.Take();
    if (!p_.At(Token::kName)) return p_.Unexpected("the name of the macro");
    s->text = p_.Take().text;
    DT_RETURN_IF_ERROR(p_.Expect(Token::kOperator, "(", "'('"));
    while (!p_.AtOperator(")")) {
      if (!p_.At(Token::kName)) return p_.Unexpected("the name of a parameter");
      s->params.emplace_back(p_.Take().text, nullptr);
      if (p_.Skip(Token::kOperator, "=")) {
        DT_ASSIGN_OR_RETURN(s->params.back().second, p_.Expression());
      }
      if (!p_.AtOperator(")")) DT_RETURN_IF_ERROR(p_.Expect(Token::kOperator, ",", "',' or ')'"));
    }
    p_.Take();
    DT_RETURN_IF_ERROR(BlockEnd());
    const int loops = std::exchange(loops_, 0);
    DT_ASSIGN_OR_RETURN(s->body, ParseBody({"endmacro"}));
    loops_ = loops;
    DT_RETURN_IF_ERROR(Closing());
    return s;
  }

  Result<StmtPtr> FilterBlock() {
    StmtPtr s = New(StmtKind::kFilter);
    p_.Take();
    DT_ASSIGN_OR_RETURN(s->expr, p_.FilterChain());
    DT_RETURN_IF_ERROR(BlockEnd());
    DT_ASSIGN_OR_RETURN(s->body, ParseBody({"endfilter"}));
    DT_RETURN_IF_ERROR(Closing());
    return s;
  }

  ExprParser p_;
  int blocks_ = 0, loops_ = 0;
};
}  // namespace

Result<Body> ParseTemplate(std::string_view source) {
  if (source.size() > kMaxSource) return InvalidArgument("the template has ", source.size(), " bytes; the most is ", kMaxSource);
  DT_ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace dovetail::jinja
