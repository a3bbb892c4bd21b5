// The numbers of a static plan: parameters of each group of values, scales of each layer's weight.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "quant/calibration.h"
#include "quant/static_plan.h"
#include "quant/weights.h"

namespace dovetail {

struct StaticParams {
  std::map<ValueId, QuantParams> groups;                // by the plan's name of the group
  std::map<NodeId, std::vector<float>> weight_scales;   // of layers
};

// A bias in units of input scale x weight scale: 30 bits leave room for the sum of products.
inline constexpr double kMostBias = 0x1p30;

// Why nodes are left in float of which one range is too wide for the quieter calls. Their layers' inputs may be quantized when the program runs.
inline constexpr std::string_view kVaries = "its values vary too much from call to call for one range";

// Which operand of a layer's weight has the output channels.
int ChannelAxis(const Node& layer);
// The constant of a layer's weight as PerChannel takes it, with outputs along ChannelAxis: a matmul's is transposed.
uint32_t WeightOf(const Graph& graph, const Node& layer, WeightQuantizer& weights);

// Chooses them from what calibration saw: ranges of the least error, where that of clipping counts `clipping` times for values that convolutions read or
// make. The ratios of scales keep within what XNNPACK's kernels take: a result's scale grows where it is too fine for
// its operands, a channel's where its bias would not fit into 30 bits. Nodes for which that does not do, or that have a value that no call reached or that is
// mere rounding noise in a tenth of the calls, are left in float: `plan` is solved again. Fails on weights that are not finite.
Result<StaticParams> ChooseParams(const Module& module, const Graph& graph, const std::map<ValueId, Observer>& observed, WeightQuantizer& weights,
                                  StaticPlan& plan, double clipping);

// The scales of a layer with inputs of scale `input`, a result of scale `output`, and weights of scales `raw` (0 for a channel of zeros).
std::vector<float> LayerScales(const std::vector<float>& raw, std::span<const float> bias, float input, float output);

// Parameters of a constant operand by itself, from all its elements; nullopt where one is not finite or unknown.
std::optional<QuantParams> ConstantParams(const Constant& c);
// Then its parameters are free: ConstantParams would give steps of 1, beside which a sum's other operand may be nothing.
bool AllZeros(const Constant& c);
std::vector<float> FloatsOf(const Constant& c);

}  // namespace dovetail
