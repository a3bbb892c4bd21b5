// Checks the inputs of a call against what the program was exported for, by name: dtype, rank, fixed sizes, ranges of dynamic ones,
// and that sizes which share a symbol agree.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dovetail/program.h"

namespace dovetail {

class InputCheck {
 public:
  // Both outlive this object.
  void Init(const MethodInfo& info, const SymbolRanges& ranges);
  // kInvalidArgument or kOutOfRange. Allocates nothing when the call is right.
  Status Run(std::span<const TensorView> inputs);

 private:
  struct Symbol {
    std::string_view name;
    DimRange range;
    int64_t value = 0;
    bool known = false;
    uint32_t input = 0, dim = 0;  // where the value came from
  };
  Status CheckInput(size_t i, const TensorView& t);
  Status CheckSymbol(size_t i, size_t d, int64_t size, Symbol* s);
  Status CheckExpressions(std::span<const TensorView> inputs);
  Status WrongSize(size_t i, size_t d, int64_t size, const std::string& wanted) const;
  Symbol* Find(std::string_view name);

  const MethodInfo* info_ = nullptr;
  std::vector<Symbol> symbols_;
};

}  // namespace dovetail
