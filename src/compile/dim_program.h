// Turns dimension expressions into integer values that a program computes at run time.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/dim.h"

namespace dovetail {

// What the expressions are made of; each returns the index of an integer value. `op` is "add", "sub", "mul", "floordiv", "mod", "sym_min"
// or "sym_max".
struct DimEmitter {
  std::function<int32_t(int64_t)> constant;
  std::function<Result<int32_t>(std::string_view symbol)> symbol;
  std::function<int32_t(std::string_view op, int32_t a, int32_t b)> binary;
};

// The index of the value of `d`; the same expression gives the same value.
class DimProgram {
 public:
  explicit DimProgram(DimEmitter emitter) : emitter_(std::move(emitter)) {}
  Result<int32_t> Emit(Dim d);

 private:
  DimEmitter emitter_;
  std::map<std::string, int32_t> known_;
};

}  // namespace dovetail
