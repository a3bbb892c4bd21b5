// The reference interpreter: runs a graph with every operator's reference kernel. Slow, and right by definition.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace dovetail {

// A tensor that owns its bytes (and 16 readable bytes after them).
struct OwnedTensor {
  TensorType type;  // constant dims
  std::vector<std::byte> storage;
  TensorView view() const;
  static OwnedTensor Make(TensorType type);
  static OwnedTensor CopyOf(const TensorView& v);
};

// The states of one instance of a module; Init gives the exported contents.
using StateStore = std::vector<OwnedTensor>;
Result<StateStore> InitStates(const Module& module);

// Values of symbols from the sizes of inputs; checks rank, dtype, sizes and the symbols' ranges, and names the input at fault.
Result<std::map<std::string, int64_t, std::less<>>> BindSymbols(const Module& module, const Graph& graph, std::span<const OwnedTensor> inputs);

// The f32 tensor that a per_tensor quantized one stands for, and the integers of a type for an f32 tensor: round(x / scale) + zero_point,
// ties to even, within the dtype's range.
OwnedTensor Dequantize(const OwnedTensor& t);
OwnedTensor Quantize(const OwnedTensor& t, const TensorType& type);

// Called with each value as it is computed; what it leaves there is what is used from then on.
using ValueObserver = std::function<void(const Graph&, ValueId, OwnedTensor&)>;

// How a call is run. The functions choose kernels in place of the references (kernels/kernels.h has such), which then run on `pool`.
struct InterpretOptions {
  ValueObserver observer;
  KernelFn (*kernel)(OpId) = nullptr;
  ScratchFn (*scratch)(OpId) = nullptr;
  struct pthreadpool* pool = nullptr;
};

// One call. `states` is read and written.
Result<std::vector<OwnedTensor>> Interpret(const Module& module, const Graph& graph, std::span<const OwnedTensor> inputs, StateStore& states,
                                           const InterpretOptions& options = {});

}  // namespace dovetail
