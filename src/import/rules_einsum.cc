// einsum of one or two operands: a product of matrices between permutations.
#include <algorithm>
#include <functional>
#include <map>

#include "import/rules.h"
#include "ops/infer_util.h"

namespace dovetail::pt2 {
namespace {

// A tensor with a letter for each of its dimensions.
struct Lettered {
  ValueId value = kNone;
  std::string letters;
};

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

bool Contains(std::string_view letters, char letter) { return letters.find(letter) != std::string_view::npos; }

std::string Where(std::string_view letters, const std::function<bool(char)>& keep) {
  std::string kept;
  for (char letter : letters)
    if (keep(letter)) kept += letter;
  return kept;
}

// "ij,jk->ik"; without "->" the letters that stand only once, in alphabetical order.
Result<Equation> Parse(std::string_view text) {
  Equation e{{""}, ""};
  std::string* part = &e.operands.back();
  bool explicit_result = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char at = text[i];
    if (at == ' ') continue;
    if (at == '.') return Unsupported("einsum '", text, "' with an ellipsis; name every dimension");
    if (at == ',' && !explicit_result) {
      part = &e.operands.emplace_back();
    } else if (at == '-' && i + 1 < text.size() && text[i + 1] == '>' && !explicit_result) {
      part = &e.result;
      explicit_result = true;
      ++i;
    } else if ((at >= 'a' && at <= 'z') || (at >= 'A' && at <= 'Z')) {
      if (Contains(*part, at)) return Unsupported("einsum '", text, "' with '", std::string(1, at), "' twice in one operand; take the diagonal first");
      *part += at;
    } else {
      return InvalidArgument("einsum '", text, "': '", std::string(1, at), "' is no letter");
    }
  }
  std::map<char, int> uses;
  for (const std::string& operand : e.operands)
    for (char letter : operand) ++uses[letter];
  for (char letter : e.result)
    if (!uses.contains(letter)) return InvalidArgument("einsum '", text, "': no operand has '", std::string(1, letter), "'");
  if (!explicit_result)
    for (const auto& [letter, count] : uses)
      if (count == 1) e.result += letter;
  return e;
}

class Einsum {
 public:
  Einsum(Call& call, std::string_view text) : c_(call), text_(text) {}

  ValueId Run() {
    Result<Equation> parsed = Parse(text_);
    if (!parsed.ok()) return Fail(std::move(parsed).status());
    const std::vector<ValueId> values = c_.Tensors("tensors");
    if (!c_.ok()) return kNone;
    if (values.size() > 2) return Fail(Unsupported("einsum '", text_, "' of ", values.size(), " operands; write it as several of two"));
    if (values.empty() || values.size() != parsed->operands.size())
      return Fail(InvalidArgument("einsum '", text_, "' of ", values.size(), " operands"));
    result_ = parsed->result;
    std::vector<Lettered> operands;
    DType dtype = c_.type(values[0]).dtype;
    if (values.size() == 2) dtype = PromoteOperands(c_.type(values[0]), c_.type(values[1]));
    for (size_t i = 0; i < values.size(); ++i) {
      operands.push_back({values[i], parsed->operands[i]});
      if (!CheckSizes(operands.back())) return kNone;
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      operands[i].value = c_.Convert(operands[i].value, dtype);
      SumAway(operands[i], operands.size() == 2 ? operands[1 - i].letters : "");
    }
    return Arrange(operands.size() == 2 ? Product(operands[0], operands[1]) : operands[0], result_);
  }

 private:
  ValueId Fail(Status status) {
    c_.Fail(std::move(status));
    return kNone;
  }

  bool CheckSizes(const Lettered& t) {
    const Shape& shape = c_.shape(t.value);
    if (shape.rank() != t.letters.size()) c_.Fail(InvalidArgument("einsum '", text_, "': '", t.letters, "' stands for ", c_.type(t.value).ToString()));
    for (size_t i = 0; c_.ok() && i < shape.rank(); ++i) {
      const Dim known = sizes_.try_emplace(t.letters[i], shape[i]).first->second;
      if (known != shape[i])
        c_.Fail(Unsupported("einsum '", text_, "': '", std::string(1, t.letters[i]), "' is ", known.ToString(), " in one operand and ", shape[i].ToString(),
                            " in the other"));
    }
    return c_.ok();
  }

  std::vector<Dim> Sizes(std::string_view letters) const {
    std::vector<Dim> sizes;
    for (char letter : letters) sizes.push_back(sizes_.at(letter));
    return sizes;
  }
  Dim Count(std::string_view letters) const {
    Dim count = 1;
    for (char letter : letters) count = count * sizes_.at(letter);
    return count;
  }

  // Sums over the letters that neither the result nor the other operand has.
  void SumAway(Lettered& t, std::string_view other) {
    std::vector<Dim> dims;
    for (size_t i = 0; i < t.letters.size(); ++i)
      if (!Contains(result_, t.letters[i]) && !Contains(other, t.letters[i])) dims.push_back(static_cast<int64_t>(i));
    if (dims.empty()) return;
    t.value = c_.Emit(OpId::kSum, {t.value}, {{"dim", std::move(dims)}});
    t.letters = Where(t.letters, [&](char l) { return Contains(result_, l) || Contains(other, l); });
  }

  ValueId Arrange(const Lettered& t, std::string_view letters) {
    if (t.letters == letters) return t.value;
    std::vector<Dim> dims;
    for (char letter : letters) dims.push_back(static_cast<int64_t>(t.letters.find(letter)));
    return c_.Emit(OpId::kPermute, {t.value}, {{"dims", std::move(dims)}});
  }

  Lettered Product(Lettered a, Lettered b) {
    // A weight stands on the right, as that of a linear layer.
    if (c_.GetConstant(a.value) && !c_.GetConstant(b.value)) std::swap(a, b);
    const auto shared = [&](char l) { return Contains(a.letters, l) && Contains(b.letters, l); };
    const std::string batch = Where(a.letters, [&](char l) { return shared(l) && Contains(result_, l); });
    const std::string summed = Where(a.letters, [&](char l) { return shared(l) && !Contains(result_, l); });
    const std::string left = Where(a.letters, [&](char l) { return !shared(l); }), right = Where(b.letters, [&](char l) { return !shared(l); });
    const std::string letters = batch + left + right;
    if (letters.size() > kMaxRank) return {Fail(Unsupported("einsum '", text_, "' over ", letters.size(), " dimensions")), letters};
    if (summed.empty()) {
      std::vector<Dim> tall = Sizes(batch + left), wide = Sizes(batch);
      tall.resize(letters.size(), 1);
      wide.resize((batch + left).size(), 1);
      for (Dim d : Sizes(right)) wide.push_back(d);
      const ValueId x = c_.Reshape(Arrange(a, batch + left), std::move(tall)), y = c_.Reshape(Arrange(b, batch + right), std::move(wide));
      return {c_.Emit(OpId::kMul, {x, y}), letters};
    }
    ValueId product;
    const Dim rows = Count(left), columns = Count(right), inner = Count(summed);
    const ValueId x = Arrange(a, batch + left + summed);
    if (batch.empty() && c_.GetConstant(b.value)) {
      std::vector<Dim> sizes = Sizes(left);
      sizes.push_back(inner);
      product = c_.Emit(OpId::kLinear, {c_.Reshape(x, std::move(sizes)), c_.Reshape(Arrange(b, right + summed), {columns, inner}), kNone});
    } else if (batch.empty()) {
      product = c_.Emit(OpId::kMatmul, {c_.Reshape(x, {rows, inner}), c_.Reshape(Arrange(b, summed + right), {inner, columns})});
    } else {
      const Dim groups = Count(batch);
      product = c_.Emit(OpId::kBmm, {c_.Reshape(x, {groups, rows, inner}), c_.Reshape(Arrange(b, batch + summed + right), {groups, inner, columns})});
    }
    return {c_.Reshape(product, Sizes(letters)), letters};
  }

  Call& c_;
  std::string_view text_;
  std::string result_;
  std::map<char, Dim> sizes_;
};

constexpr Rule kRules[] = {
    {"aten.einsum.default", [](Call& c) { c.Return(Einsum(c, c.String("equation", "")).Run()); }},
};

}  // namespace

const std::span<const Rule> kEinsumRules = kRules;

}  // namespace dovetail::pt2
