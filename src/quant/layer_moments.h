// The second moments of what the weights of layers meet when recorded calls run.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "quant/calibration.h"
#include "quant/gptq.h"
#include "quant/kernel_run.h"

namespace dovetail {

// One for each group of a layer's output channels: the columns of a matrix, or the input channels and taps of a convolution.
class LayerMoments {
 public:
  // `layer` is a linear, matmul or convolution (not a transposed one) of f32.
  LayerMoments(const Graph& graph, const Node& layer);
  static size_t BytesFor(const Graph& graph, const Node& layer);
  // `input` is the layer's first operand in some call: of convolutions a part of the positions of the result counts, spread over all of them, where they are
  // many. Rows with a value that is not finite are left out, or of convolutions the whole input.
  void Add(const Graph& graph, const Node& layer, const TensorView& input, struct pthreadpool* pool = nullptr);
  // Of a layer of the same shape.
  void Merge(const LayerMoments& other);
  const std::vector<InputMoments>& groups() const { return groups_; }
  int64_t rows() const { return groups_.empty() ? 0 : groups_[0].rows(); }

 private:
  std::vector<InputMoments> groups_;
};

// What layers with the same rows have in common: matrices their input, convolutions nothing.
struct LayerInput {
  size_t graph;
  ValueId value;
  NodeId convolution;  // kNone for matrices
  auto operator<=>(const LayerInput&) const = default;
};
LayerInput LayerInputOf(const Module& module, size_t graph, NodeId layer);

// Runs calls for the moments of layers.
class MomentsRun {
 public:
  MomentsRun(const Module& module, std::span<const std::string> files, const ProgressFn& progress) : module_(module), files_(files), progress_(progress) {}
  struct pthreadpool* pool() const { return run_.pool(); }
  // Over all calls; each input with one of the layers that have it. The progress is that of part `part` of `parts` of such a run each.
  Result<std::map<LayerInput, LayerMoments>> Gather(const std::map<LayerInput, NodeId>& layers, size_t part, size_t parts) const;

 private:
  const Module& module_;
  std::span<const std::string> files_;
  const ProgressFn& progress_;
  KernelRun run_;
};

}  // namespace dovetail
