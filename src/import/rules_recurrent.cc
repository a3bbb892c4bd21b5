// LSTM and GRU layers: the input's part of all gates is a linear layer over all steps, the rest a scan.
#include "import/rules.h"

namespace dovetail::pt2 {
namespace {


ValueId StateOf(Call& c, ValueId states, int64_t index) {
  const ValueId one = c.Emit(OpId::kSlice, {states}, {{"dim", 0}, {"start", index}, {"end", index + 1}});
  if (!c.ok()) return kNone;
  return c.Reshape(one, {c.shape(states)[1], c.shape(states)[2]});
}

ValueId Stacked(Call& c, const std::vector<ValueId>& states) {
  std::vector<ValueId> parts;
  for (ValueId v : states)
    if (c.ok()) parts.push_back(c.Reshape(v, {Dim(1), c.shape(v)[0], c.shape(v)[1]}));
  return parts.size() == 1 ? parts[0] : c.Emit(OpId::kCat, std::move(parts), {{"dim", 0}});
}

ValueId SwapFirstTwo(Call& c, ValueId v) { return c.Emit(OpId::kPermute, {v}, {{"dims", Attr::Ints({1, 0, 2})}}); }

void Recurrent(Call& c, const std::vector<ValueId>& first_states, bool lstm) {
  if (c.Bool("train", false) && c.Float("dropout", 0) > 0)
    return c.Fail(Unsupported("the model was exported in training mode; call model.eval() before torch.export.export"));
  const bool biases = c.Bool("has_biases", true), both = c.Bool("bidirectional", false), batch_first = c.Bool("batch_first", false);
  const int64_t layers = c.Int("num_layers", 1), directions = both ? 2 : 1;
  const std::vector<ValueId> params = c.Tensors("params");
  const size_t each = biases ? 4 : 2;
  ValueId x = c.Tensor("input");
  if (!c.ok()) return;
  if (layers < 1 || params.size() != each * static_cast<size_t>(layers * directions))
    return c.Fail(Unsupported(lstm ? "an LSTM" : "a GRU", " with ", params.size(), " weights for ", layers, " layers; projections (proj_size) are not supported"));
  if (batch_first) x = SwapFirstTwo(c, x);
  std::vector<ValueId> last_h, last_c;
  for (int64_t layer = 0; layer < layers && c.ok(); ++layer) {
    std::vector<ValueId> outputs;
    for (int64_t d = 0; d < directions && c.ok(); ++d) {
      const int64_t index = layer * directions + d;
      const ValueId* p = params.data() + static_cast<size_t>(index) * each;
      const ValueId gates = c.Emit(OpId::kLinear, {x, p[0], biases ? p[2] : kNone});
      const ValueId own_bias = biases ? p[3] : kNone, h0 = StateOf(c, first_states[0], index);
      const std::vector<ValueId> results =
          lstm ? c.EmitAll(OpId::kLstmScan, {gates, h0, StateOf(c, first_states[1], index), p[1], own_bias}, {{"reverse", d == 1}})
               : c.EmitAll(OpId::kGruScan, {gates, h0, p[1], own_bias}, {{"reverse", d == 1}});
      if (!c.ok()) return;
      outputs.push_back(results[0]);
      last_h.push_back(results[1]);
      if (lstm) last_c.push_back(results[2]);
    }
    if (!c.ok()) return;
    x = both ? c.Emit(OpId::kCat, std::move(outputs), {{"dim", 2}}) : outputs[0];
  }
  if (!c.ok()) return;
  c.Return(batch_first ? SwapFirstTwo(c, x) : x);
  c.Return(Stacked(c, last_h));
  if (lstm) c.Return(Stacked(c, last_c));
}

void Lstm(Call& c) {
  const std::vector<ValueId> states = c.Tensors("hx");
  if (c.ok() && states.size() != 2) return c.Fail(Corrupt("an LSTM with ", states.size(), " first states"));
  if (c.ok()) Recurrent(c, states, true);
}
void Gru(Call& c) {
  const std::vector<ValueId> states = {c.Tensor("hx")};
  if (c.ok()) Recurrent(c, states, false);
}

constexpr Rule kTable[] = {
    {"aten.lstm.input", Lstm},
    {"aten.gru.input", Gru},
};

}  // namespace

const std::span<const Rule> kRecurrentRules = kTable;

}  // namespace dovetail::pt2
