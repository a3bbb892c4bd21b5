// The JSON of an export as plain structs, checked for form but not for meaning. Strings borrow from the document they hold.
// The reference for the fields is torch/_export/serde/schema.py.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dim.h"
#include "core/dtype.h"
#include "import/json_reader.h"

namespace dovetail::pt2 {

enum class ArgType : uint8_t {
  kNone,
  kTensor,     // text: name
  kTensors,    // items: kTensor, or kNone for an absent one
  kInt,        // integer
  kInts,       // items: kInt or kSymInt
  kFloat,      // number
  kFloats,     // items
  kBool,       // integer
  kBools,      // items
  kString,     // text
  kSymInt,     // text: a name in sym_int_values
  kSymOther,   // text: a symbolic bool or float
  kDType,      // integer: the file's number
  kLayout,     // integer
  kMemoryFormat,
  kDevice,
  kOther,      // text: the tag of an alternative without a meaning here
};

struct Arg {
  ArgType type = ArgType::kNone;
  std::string_view text;
  int64_t integer = 0;
  double number = 0;
  std::vector<Arg> items;

  static Arg Of(ArgType t) {
    Arg arg;
    arg.type = t;
    return arg;
  }
};

struct NamedArg {
  std::string_view name;
  Arg value;
};

struct FxNode {
  std::string_view target;  // "aten.add.Tensor", "_operator.mul": without "torch.ops."
  std::string_view name;
  std::vector<NamedArg> inputs;
  std::vector<Arg> outputs;
  std::string_view stack_trace, module_stack;
};

// A tensor's recorded type. `dtype` kNone: one that this project does not have, `dtype_number` is the file's.
struct TensorMeta {
  DType dtype = DType::kNone;
  int64_t dtype_number = 0;
  std::vector<Dim> sizes, strides;
  Dim offset;
};

struct InputSpec {
  enum Kind : uint8_t { kParameter, kBuffer, kTensorConstant, kUserInput, kConstantInput, kOther } kind = kOther;
  Arg arg;               // kTensor for the first three
  std::string_view name; // fully qualified name of a parameter, buffer or constant
  std::string_view tag;  // as in the file
};

struct OutputSpec {
  enum Kind : uint8_t { kUserOutput, kBufferMutation, kUserInputMutation, kParameterMutation, kToken, kOther } kind = kOther;
  Arg arg;
  std::string_view target;  // the buffer, parameter or input that is written
  std::string_view tag;
};

struct ExportedProgram {
  JsonDocument document;
  std::string_view torch_version;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<FxNode> nodes;
  std::vector<std::pair<std::string_view, DimRange>> ranges;  // by expression in plain text, such as "2*s30"
  std::unordered_map<std::string_view, JsonElement> tensors;  // metas, read on demand
  std::unordered_map<std::string_view, JsonElement> sym_ints;

  // The recorded type of a tensor value of the graph, without its strides; NotFound when the file has none.
  Result<TensorMeta> Tensor(std::string_view name) const;
  Result<TensorMeta> TensorWithStrides(std::string_view name) const;
  // The expression that a symbolic int of the graph stands for.
  Result<Dim> SymInt(std::string_view name) const;
};

// `text` is only read during the call.
Result<std::unique_ptr<ExportedProgram>> ParseExportedProgram(std::span<const std::byte> text, std::string_view name);
// Also for the weights' configurations.
Result<TensorMeta> ParseTensorMeta(JsonElement element, std::string_view where, bool with_strides = true);
// The file's numbering of dtypes; kNone for those without a type here. Complex64 is kC64.
DType DTypeFromFile(int64_t number);
// Its name in torch, for messages.
std::string_view DTypeNameInFile(int64_t number);

}  // namespace dovetail::pt2
