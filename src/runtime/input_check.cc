#include "runtime/input_check.h"

#include <algorithm>
#include <optional>

namespace dovetail {

void InputCheck::Init(const MethodInfo& info, const SymbolRanges& ranges) {
  info_ = &info;
  symbols_.clear();
  for (const auto& [name, range] : ranges) symbols_.push_back({name, range});
}

InputCheck::Symbol* InputCheck::Find(std::string_view name) {
  auto it = std::find_if(symbols_.begin(), symbols_.end(), [&](const Symbol& s) { return s.name == name; });
  return it == symbols_.end() ? nullptr : &*it;
}

Status InputCheck::WrongSize(size_t i, size_t d, int64_t size, const std::string& wanted) const {
  return OutOfRange("input '", info_->inputs[i].name, "' of method '", info_->name, "' has size ", size, " at dimension ", d, "; the program takes ", wanted,
                    " there (", info_->inputs[i].type.ToString(), ")");
}

Status InputCheck::CheckSymbol(size_t i, size_t d, int64_t size, Symbol* s) {
  if (s->known && s->value != size) {
    const TensorInfo& other = info_->inputs[s->input];
    return WrongSize(i, d, size, StrCat("the size of dimension ", s->dim, " of '", other.name, "', which is ", s->value, ","));
  }
  if (size < s->range.min || size > s->range.max) {
    return WrongSize(i, d, size, s->range.max == DimRange::kUnbounded ? StrCat(s->range.min, " or more") : StrCat(s->range.min, " to ", s->range.max));
  }
  *s = {s->name, s->range, size, true, static_cast<uint32_t>(i), static_cast<uint32_t>(d)};
  return OkStatus();
}

Status InputCheck::CheckInput(size_t i, const TensorView& t) {
  const TensorInfo& want = info_->inputs[i];
  auto wrong = [&](const std::string& what) {
    return InvalidArgument("input '", want.name, "' of method '", info_->name, "' ", what, "; the program takes ", want.type.ToString());
  };
  if (want.type.dtype == DType::kNone) return t.present() ? wrong("is always None, but a tensor is given") : OkStatus();
  if (!t.present()) return wrong("is missing");
  if (t.dtype != want.type.dtype) return wrong(StrCat("is ", Name(t.dtype), ", not ", Name(want.type.dtype)));
  if (t.rank != want.type.rank()) return wrong(StrCat("has rank ", t.rank, ", not ", want.type.rank()));
  for (size_t d = 0; d < t.rank; ++d) {
    const int64_t size = t.sizes[d];
    if (size < 0) return wrong(StrCat("has the negative size ", size, " at dimension ", d));
    const Dim dim = want.type.shape[d];
    if (dim.is_constant()) {
      const bool fixed = want.symbolic || !want.dynamic;
      if (fixed ? size != dim.value() : size > dim.value()) return WrongSize(i, d, size, fixed ? StrCat(dim.value()) : StrCat("at most ", dim.value()));
    } else if (Symbol* s = Find(dim.symbol())) {
      DT_RETURN_IF_ERROR(CheckSymbol(i, d, size, s));
    }
    if (d < want.max_sizes.size() && size > want.max_sizes[d]) return WrongSize(i, d, size, StrCat("at most ", want.max_sizes[d]));
  }
  if (t.numel() > 0 && !t.data) return wrong("has no data");
  return OkStatus();
}

// Sizes that are expressions of symbols, "2*s0": after every plain symbol has its value.
Status InputCheck::CheckExpressions(std::span<const TensorView> inputs) {
  const SymbolValues values = [this](std::string_view name) -> std::optional<int64_t> {
    const Symbol* s = Find(name);
    return s && s->known ? std::optional(s->value) : std::nullopt;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t d = 0; d < info_->inputs[i].type.rank(); ++d) {
      const Dim dim = info_->inputs[i].type.shape[d];
      if (dim.is_constant() || !dim.symbol().empty()) continue;
      const std::optional<int64_t> size = dim.Evaluate(values);
      if (size && *size != inputs[i].sizes[d]) return WrongSize(i, d, inputs[i].sizes[d], StrCat(dim.ToString(), ", which is ", *size, ","));
    }
  }
  return OkStatus();
}

Status InputCheck::Run(std::span<const TensorView> inputs) {
  if (inputs.size() != info_->inputs.size())
    return InvalidArgument("method '", info_->name, "' takes ", info_->inputs.size(), " inputs, but ", inputs.size(), " are given");
  for (Symbol& s : symbols_) s.known = false;
  for (size_t i = 0; i < inputs.size(); ++i) DT_RETURN_IF_ERROR(CheckInput(i, inputs[i]));
  return CheckExpressions(inputs);
}

}  // namespace dovetail
