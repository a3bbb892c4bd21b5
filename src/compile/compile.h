// The whole way from a .pt2 to a .pte.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compile/fix_shapes.h"
#include "compile/partition.h"
#include "quant/quantize.h"

namespace dovetail {

struct CompileOptions {
  std::vector<std::string> backends = {"xnnpack", "cpu"};  // in order of preference; cpu takes what is left
  std::string qnn_library, qnn_soc;                        // --qnn-lib, --soc: for the backend qnn
  bool qnn_separate_weights = false;                       // --qnn-separate-weights: see MakeQnnBackend
  bool stock_runtime = false;                              // --runtime executorch
  QuantizeOptions quantize;                                // --quantize, --state, --keep-float, --calibrate
  std::vector<std::pair<std::string, std::string>> methods;  // further methods: name, .pt2; states and weights are shared by name
  std::vector<InputShape> input_shapes;                      // --input-shape: sizes fixed in place of symbolic ones
};

struct CompiledState {
  std::string name, dtype;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

struct CompileReport {
  double seconds = 0;
  uint64_t peak_anonymous_bytes = 0;  // RssAnon of the process, sampled every 5 ms
  uint64_t output_bytes = 0, planned_bytes = 0, planned_lower_bound = 0;
  uint64_t macs_total = 0, macs_delegated = 0;  // multiply-adds of linears, matrix products and convolutions at the upper bounds
  size_t linears_total = 0, linears_delegated = 0, linears_quantized = 0;
  QuantizeReport quantize;
  std::vector<CompiledState> states;
  PartitionReport partition;
};

// Operators whose multiply-adds a report counts. Attention and recurrences are our own kernels' wherever they are.
bool IsProduct(OpId op);

// Writes `output`, whole or not at all.
Result<CompileReport> CompileFile(const std::string& input, const std::string& output, const CompileOptions& options);

// Everything up to the partition, for `explain`.
Result<CompileReport> ExplainFile(const std::string& input, const CompileOptions& options);

// The module after the core passes.
Result<Module> ImportAndOptimize(const std::string& input, const CompileOptions& options);

}  // namespace dovetail
