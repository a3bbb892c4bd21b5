// An operator's signature, parsed from a text in the field's notation:
//   "index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor"
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/attr.h"

namespace dovetail {

enum class ArgKind : uint8_t {
  kTensor,              // Tensor
  kOptionalTensor,      // Tensor?
  kTensorList,          // Tensor[]
  kOptionalTensorList,  // Tensor?[]
  kBool,                // bool, bool?
  kInt,                 // int, SymInt
  kFloat,               // float
  kScalar,              // Scalar (bool, int or float)
  kString,              // str
  kIntList,             // int[], SymInt[], int[2]
  kFloatList,           // float[]
  kBoolList,            // bool[], bool[3]
  kDType,               // ScalarType
  kIgnored,             // Layout, Device, MemoryFormat, Generator: no meaning here, always none
};

inline bool IsTensorKind(ArgKind k) { return k <= ArgKind::kOptionalTensorList; }
inline bool IsListOfTensors(ArgKind k) { return k == ArgKind::kTensorList || k == ArgKind::kOptionalTensorList; }

struct SchemaArg {
  std::string name;
  ArgKind kind;
  bool optional = false;      // may be None
  bool has_default = false;
  bool keyword_only = false;
  bool written = false;       // "Tensor(a!)": updated in place; the result shares its memory
  Attr default_value;         // of a non-tensor argument with has_default
  int index = 0;              // among the tensor arguments, or among the others (the index of its Attr in a node)
};

struct Schema {
  std::string name;
  std::vector<SchemaArg> args;
  std::vector<std::string> results;  // names, or "" where the schema gives none
  int tensor_args = 0, other_args = 0;
  int list_arg = -1;          // position in `args` of the one list of tensors, or -1
  bool list_result = false;   // one result "Tensor[]": the number of results follows from the arguments

  const SchemaArg* Find(std::string_view arg_name) const;
  // How many operands the tensor argument at `args[position]` takes in a node with `operands` operands in all, and the first of
  // them. Operands stand in schema order; an absent optional one keeps its place.
  struct Range {
    size_t first, count;
  };
  Range OperandsOf(size_t position, size_t operands) const;
};

// The texts are ours, so an error in one is a programmer error (DT_CHECK).
Schema ParseSchema(std::string_view text);
// The same for text from a user's file.
Result<Schema> ParseSchemaChecked(std::string_view text);

}  // namespace dovetail
