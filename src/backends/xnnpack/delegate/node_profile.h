// Times of a graph's nodes, as XNNPACK takes them: in whole microseconds, rounded down.
#pragma once

#include <xnnpack.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/xnnpack/delegate/node_shapes.h"
#include "base/status.h"
#include "runtime/profiler.h"

namespace dovetail {

class NodeProfile {
 public:
  // `runtime` was made of the graph with XNN_FLAG_BASIC_PROFILING. The graph outlives the profile.
  static Result<std::unique_ptr<NodeProfile>> Create(const xn::XNNGraph& graph, xnn_runtime_t runtime, Profiler* profiler);
  // Of the invocation that began at `start_ns`. Allocates nothing unless the profiler describes; `sizes` are those of arguments by external
  // id.
  Status Record(xnn_runtime_t runtime, int64_t start_ns, const std::function<std::span<const size_t>(uint32_t external_id)>& sizes);

 private:
  // Operators of XNNPACK in the order in which they run.
  struct Operator {
    std::string name;   // "FullyConnected (NC, F32) GEMM"
    std::string made;   // as XNNPACK calls it: "Fully Connected (NC, F32) GEMM"
    uint32_t node = 0;  // in the graph; where `known` is false, the operator's own number
  };
  NodeProfile(const xn::XNNGraph& graph, Profiler* profiler) : graph_(graph), profiler_(profiler), shapes_(graph) {}
  void MatchNodes();
  Profiler::Detail Describe(const Operator& op) const;

  const xn::XNNGraph& graph_;
  Profiler* profiler_;
  NodeShapes shapes_;
  std::vector<Operator> operators_;
  std::vector<uint64_t> microseconds_;
  bool known_ = false;  // which node of the graph every operator is
};

}  // namespace dovetail
