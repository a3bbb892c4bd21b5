// The values of one loaded method: what a .pte calls EValues, with the tensors in a table of their own.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "core/attr.h"
#include "core/tensor_view.h"
#include "format/pte_reader.h"

namespace dovetail {

enum class ValueKind : uint8_t { kNone, kInt, kBool, kDouble, kString, kTensor, kIntList, kDoubleList, kBoolList, kTensorList };

struct Value {
  ValueKind kind = ValueKind::kNone;
  bool computed = false;  // a number that changes while running: an input, or the result of an instruction
  uint32_t tensor = 0;    // of kTensor: index into Tensors
  union {
    int64_t i = 0;
    double d;
    bool b;
  };
  const pte::EValue* source = nullptr;

  bool is_number() const { return kind == ValueKind::kInt || kind == ValueKind::kBool || kind == ValueKind::kDouble; }
  // A number in another kind; truncated and saturated where it does not fit.
  int64_t AsInt() const;
  double AsDouble() const;
  bool AsBool() const;
  void Set(int64_t v) { kind = ValueKind::kInt, i = v; }
  void Set(double v) { kind = ValueKind::kDouble, d = v; }
  void Set(bool v) { kind = ValueKind::kBool, b = v; }
  // The number as an attribute; None for what is not a number.
  Attr AsAttr() const;
};

enum class Storage : uint8_t {
  kNone,      // not placed yet
  kPlanned,   // in an arena of the method
  kState,     // in (a part of) a state of the instance
  kConstant,  // in the file, read only
  kOwned,     // in a buffer of its own
  kBorrowed,  // an input read in place, read only
  kView,      // wherever tensor `root` is
};

struct Tensor {
  TensorView view;  // of this call; data and capacity stay what placement gave them, sizes change
  std::array<int64_t, kMaxRank> bounds{};
  bool fixed = true;       // sizes are always `bounds`
  bool growable = false;   // no bound is known: memory grows
  bool written = false;    // by some instruction, itself or through a view of it
  Storage storage = Storage::kNone;
  uint32_t root = 0;       // for kView: the tensor that has the memory, else itself
  uint32_t value = 0;      // the Value that it belongs to
  size_t capacity = 0;     // bytes
  const pte::Tensor* source = nullptr;
};

struct ValueTable {
  std::vector<Value> values;
  std::vector<Tensor> tensors;
};

// Nothing is placed in memory yet. Fails for layouts other than contiguous.
Result<ValueTable> LoadValues(const pte::ExecutionPlan& plan);

// What the .pte says of a value for messages: "value 12 (f32[2,3])".
std::string DescribeValue(const ValueTable& table, size_t value);

// Product of the sizes and the element size; false on overflow or a negative size.
bool ByteCount(DType dtype, std::span<const int64_t> sizes, size_t* bytes);

}  // namespace dovetail
