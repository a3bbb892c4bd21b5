// The blob "dovetail.meta" of a program (meta.fbs): names and symbolic shapes of inputs and outputs, ranges of symbols, source lines.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/tensor_type.h"

namespace dovetail {

inline constexpr std::string_view kMetaKey = "dovetail.meta";

struct MetaArgument {
  std::string name;
  Shape shape;
};
struct MetaMethod {
  std::string name;
  std::vector<MetaArgument> inputs, outputs;
  std::vector<std::string> instruction_sources;  // per instruction; empty where unknown
};
// As `compile` was told; empty: not at all.
struct QuantizationInfo {
  std::string scheme, state;
  std::vector<std::string> keep_float;
};
struct MetaProgram {
  QuantizationInfo quantization;
  SymbolRanges symbols;
  std::vector<MetaMethod> methods;
};

// The same description gives the same bytes.
std::vector<std::byte> SerializeMeta(const MetaProgram& meta);
// `name` starts error messages. kCorrupt, or kUnsupported for a later version.
Result<MetaProgram> ReadMeta(std::span<const std::byte> bytes, const std::string& name);

}  // namespace dovetail
