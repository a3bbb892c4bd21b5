#include "quant/convolution_taps.h"

#include <algorithm>

#include "base/check.h"

namespace dovetail {
namespace {

int64_t Positions(int64_t size, const WindowDim& w) { return std::max<int64_t>(0, (size + 2 * w.padding - w.extent()) / w.stride + 1); }

}  // namespace

ConvolutionTaps ConvolutionTaps::Of(const Graph& graph, const Node& layer, const TensorView& input) {
  const size_t spatial = input.rank - 2u;
  int64_t kernel[2];
  for (size_t i = 0; i < spatial; ++i) kernel[i] = graph.type(layer.operands[1]).shape[2 + i].value();
  const Attr dilation = GetAttr(layer, "dilation");
  const Result<Window> window = ReadWindow({kernel, spatial}, GetAttr(layer, "stride"), GetAttr(layer, "padding"), &dilation, 1);
  DT_CHECK(window.ok());  // the graph is valid
  ConvolutionTaps t{*window, spatial == 2 ? input.sizes[2] : 1, input.sizes[input.rank - 1u], 0, 0};
  t.out_h = Positions(t.in_h, t.window[0]);
  t.out_w = Positions(t.in_w, t.window[1]);
  return t;
}

}  // namespace dovetail
