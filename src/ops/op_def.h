// The definition of an operator, and the table of all of them.
//
// An operator is one file src/ops/<name>.cc that defines `constinit const OpDef kOp<Name>` and one line OP(<Name>) in ops.def. A
// listed operator without its file is a link error; nothing registers itself at start-up.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "core/attr.h"
#include "core/tensor_type.h"
#include "core/tensor_view.h"
#include "ops/schema.h"

struct pthreadpool;

namespace dovetail {

enum class OpId : uint16_t {
#define OP(Name) k##Name,
#include "ops/ops.def"
#undef OP
  kCount,
};

// What inference sees: operand types in schema order (dtype kNone for an absent one) and attributes in schema order, defaults
// filled in. It fills `results` (as many as the schema says, or as it decides for "Tensor[]"). The same function runs when
// compiling (symbolic dims) and when resizing at run time (constants only), so it must not allocate for constant dims.
struct InferContext {
  std::span<const TensorType> operands;
  std::span<const Attr> attrs;
  std::span<TensorType> results;
  // Constant contents of operands where they are known (data null otherwise); empty when none is.
  std::span<const TensorView> constants;

  const TensorType& operand(size_t i) const { return operands[i]; }
  bool has(size_t i) const { return i < operands.size() && operands[i].dtype != DType::kNone; }
  const Attr& attr(size_t i) const { return attrs[i]; }
};

// What a kernel sees: contiguous tensors whose shapes agree with inference, attributes with constant dims. Outputs never overlap
// inputs, except the first output of an operator whose schema marks the first argument as written: those are one tensor.
// Kernels trust shapes and dtypes; they check *values* that index memory (index out of range) and return OutOfRange.
struct KernelContext {
  std::span<const TensorView> inputs;
  std::span<const Attr> attrs;
  std::span<const TensorView> outputs;
  struct pthreadpool* pool = nullptr;  // null: run on the calling thread
  std::span<std::byte> scratch;        // as many bytes as the kernel's scratch function asked for, aligned to 64

  const TensorView& in(size_t i) const { return inputs[i]; }
  bool has(size_t i) const { return i < inputs.size() && inputs[i].present(); }
  const TensorView& out(size_t i = 0) const { return outputs[i]; }
  const Attr& attr(size_t i) const { return attrs[i]; }
};
using KernelFn = Status (*)(const KernelContext&);
using ScratchFn = size_t (*)(const KernelContext&);

enum OpTraits : uint32_t {
  kPure = 0,
  kElementwise = 1u << 0,      // results broadcast from operands, element by element
  kCommutative = 1u << 1,
  kMetadataOnly = 1u << 2,     // result has the operand's bytes in the same order (view): may alias its memory
  kDataMovement = 1u << 3,     // moves elements, computes nothing: values keep their quantization
  kStructural = 1u << 4,       // no kernel: const, state.read, state.write, delegate
  kFused = 1u << 5,            // of the namespace dovetail::
  kQuantized = 1u << 6,        // takes or gives quantized types as they are; see ComputesOnIntegers
};

struct OpDef {
  std::string_view name;        // in the text form: "linear"
  std::string_view schema;      // argument list as the stock runtime's out variant has it, less the out tensors
  // Names under which exports hold this operator with arguments of the same names: "aten.linear.default aten.x.y", separated by
  // blanks. Exports that need more than renaming have a rule in src/import.
  std::string_view imports;
  std::string_view out_variant;  // the operator in a .pte: "aten::linear.out"; empty for structural ones
  uint32_t traits = kPure;
  Status (*infer)(const InferContext&) = nullptr;
  KernelFn reference = nullptr;  // the meaning: plain and slow
};

#define OP(Name) extern const OpDef kOp##Name;
#include "ops/ops.def"
#undef OP

const OpDef& GetOp(OpId id);
// Whether the operator takes per_tensor quantized operands as integers: it moves elements, or quantization is its subject. Of any other
// operator a quantized form means this: operands are dequantized, the operator computes in f32, its results are quantized to the types
// they are declared with.
bool ComputesOnIntegers(OpId id);
// The parsed schema, made on first use and kept.
const Schema& GetSchema(OpId id);
// kCount when there is none.
OpId FindOp(std::string_view name);
// By out_variant.
OpId FindOutVariant(std::string_view name);

}  // namespace dovetail
