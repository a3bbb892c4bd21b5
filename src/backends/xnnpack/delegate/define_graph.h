// Rebuilds the graph of a verified blob as an XNNPACK subgraph.
#pragma once

#include <xnnpack.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/xnnpack/delegate/weights_cache.h"
#include "format/xnnpack_blob.h"
#include "runtime/delegate.h"

namespace dovetail {

struct DeleteSubgraph {
  void operator()(xnn_subgraph* s) const { xnn_delete_subgraph(s); }
};
struct DeleteRuntime {
  void operator()(xnn_runtime* r) const { xnn_delete_runtime(r); }
};
using SubgraphPtr = std::unique_ptr<xnn_subgraph, DeleteSubgraph>;
using RuntimePtr = std::unique_ptr<xnn_runtime, DeleteRuntime>;

struct XnnExternal {
  uint32_t id;  // in XNNPACK, and the position among the arguments of the call
  bool output;
  DType dtype;
  TensorView bounds;  // the largest sizes, without data
};

struct DefinedGraph {
  SubgraphPtr subgraph;
  std::vector<XnnExternal> inputs, outputs;
  std::vector<std::span<const std::byte>> packed;  // bytes that nobody reads once a runtime was created
  std::vector<std::span<const std::byte>> named;   // constants that are named data of the program
  std::vector<std::span<const std::byte>> kept;    // constants that XNNPACK reads in each call
  bool use_cache = true;                           // whether the weights cache may be used (WeightsCache::Admit)
  // Block scales that had to be converted; they must live until the runtime was created.
  std::vector<std::unique_ptr<uint16_t[]>> scales;
};

// `cache` may be null. `name` begins messages.
Result<DefinedGraph> DefineGraph(const XnnpackBlob& blob, const DelegateInitContext& ctx, WeightsCache* cache, const std::string& name);

// "XNNPACK refused it: unsupported parameter" and the like.
std::string_view XnnStatusText(xnn_status status);

}  // namespace dovetail
