#include "xnnpack/harness.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "base/check.h"
#include "format/xnnpack_blob.h"

namespace dovetail {
namespace {

std::vector<uint64_t> Aligned(const std::vector<std::byte>& bytes) {
  std::vector<uint64_t> words((bytes.size() + 7) / 8 + 2);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

}  // namespace

Module ParseText(const std::string& text) {
  Result<Module> m = Parse(text);
  EXPECT_TRUE(m.ok()) << m.status().ToString() << "\n" << text;
  return m.ok() ? std::move(*m) : Module();
}

void Fill(const TensorView& to, uint32_t seed, bool positive) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < to.numel(); ++i) {
    float v = normal(random);
    if (positive) v = std::abs(v) + 0.1f;
    switch (to.dtype) {
      case DType::kF32: to.as<float>()[i] = v; break;
      case DType::kBF16: to.as<uint16_t>()[i] = FloatToBFloat16(v); break;
      case DType::kI8: to.as<int8_t>()[i] = static_cast<int8_t>(random() % 255 - 127); break;
      case DType::kU8: to.as<uint8_t>()[i] = static_cast<uint8_t>(random() % 256); break;
      default: ADD_FAILURE() << "random " << Name(to.dtype);
    }
  }
}

void FillConstants(Module& module, bool positive) {
  uint32_t seed = 1;
  for (Constant& k : module.constants) {
    if (k.data_known) continue;
    OwnedTensor t = OwnedTensor::Make(k.type);
    const bool scale = k.name[0] == 's';
    Fill(t.view(), seed++, positive || scale);
    for (int64_t i = 0; scale && i < t.view().numel(); ++i) {
      if (k.type.dtype == DType::kF32) t.view().as<float>()[i] *= 0.01f;
      else t.view().as<uint16_t>()[i] = FloatToBFloat16(BFloat16ToFloat(t.view().as<uint16_t>()[i]) * 0.05f);
    }
    t.storage.resize(k.nbytes());
    k = MakeOwnedConstant(k.name, k.type, std::move(t.storage));
  }
}

std::string Whole(const std::string& text) { return "module {\n  symbol s0 = 1..9\n  symbol s1 = 1..7\n" + text + "\n}\n"; }

std::string DifferenceFrom(const TensorView& want, const TensorView& got, const Case& c) {
  if (!(got.type() == want.type())) return StrCat("is ", got.type().ToString(), ", not ", want.type().ToString());
  for (int64_t i = 0; got.dtype == DType::kI8 && i < want.numel(); ++i)
    if (std::abs(got.as<int8_t>()[i] - want.as<int8_t>()[i]) > c.steps)
      return StrCat("element ", i, " is ", got.as<int8_t>()[i], ", not ", want.as<int8_t>()[i]);
  if (got.dtype == DType::kI8) return "";
  double range = 1e-3;
  for (int64_t i = 0; i < want.numel(); ++i) range = std::max(range, std::abs(static_cast<double>(want.as<float>()[i])));
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double g = got.as<float>()[i], w = want.as<float>()[i];
    if (!(std::abs(g - w) <= c.tolerance * range)) return StrCat("element ", i, " is ", FormatDouble(g), ", not ", FormatDouble(w));
  }
  return "";
}

Harness::Harness(const Case& c) : case_(c), module_(ParseText(Whole(c.text))) {
  FillConstants(module_, c.positive);
  region_.backend = "xnnpack";
  region_.body = module_.graphs.empty() ? std::make_unique<Graph>("none") : std::move(module_.graphs[0]);
  region_.aliases.assign(graph().outputs.size(), -1);
}

Status Harness::Check() const {
  for (NodeId id : graph().order) DT_RETURN_IF_ERROR(XnnpackBackend().check(module_, graph(), graph().node(id)));
  return OkStatus();
}

Status Harness::Load() {
  DT_ASSIGN_OR_RETURN(lowered_, XnnpackBackend().lower(module_, region_));
  payload_ = Aligned(lowered_.payload);
  for (SharedData& s : lowered_.shared) {
    std::vector<std::byte> bytes = s.bytes;
    if (bytes.empty()) {
      bytes.resize(s.constant->nbytes());
      s.constant->CopyTo(bytes.data());
    }
    named_[s.key] = Aligned(bytes);
  }
  DT_ASSIGN_OR_RETURN(delegate_, Create());
  return OkStatus();
}

Result<std::unique_ptr<Delegate>> Harness::Create() {
  DelegateInitContext ctx;
  ctx.payload = {reinterpret_cast<const std::byte*>(payload_.data()), lowered_.payload.size()};
  ctx.named_data = [this](std::string_view key) -> Result<std::span<const std::byte>> {
    auto it = named_.find(std::string(key));
    if (it == named_.end()) return NotFound(key);
    return std::span(reinterpret_cast<const std::byte*>(it->second.data()), it->second.size() * 8 - 16);
  };
  ctx.release = [this](std::span<const std::byte> bytes) { released_ += bytes.size(); };
  std::vector<TensorView> arguments;
  for (ValueId v : graph().inputs) arguments.push_back(Bound(v));
  for (ValueId v : graph().outputs) arguments.push_back(Bound(v));
  ctx.arguments = arguments;
  ctx.num_inputs = graph().inputs.size();
  ctx.program_shared = &program_shared;
  ctx.method_shared = &method_shared;
  return kXnnpackDelegate.create(ctx);
}

std::string Harness::Run(int64_t s0, int64_t s1, uint32_t seed) {
  const auto values = [&](std::string_view s) -> std::optional<int64_t> { return s == "s0" ? s0 : s1; };
  std::vector<OwnedTensor> inputs;
  std::vector<TensorView> in, out;
  for (ValueId v : graph().inputs) {
    Shape shape;
    for (Dim d : graph().type(v).shape) shape.push_back(*d.Evaluate(values));
    inputs.push_back(OwnedTensor::Make(TensorType(graph().type(v).dtype, shape, graph().type(v).quant)));
    Fill(inputs.back().view(), seed++, case_.positive);
    in.push_back(inputs.back().view());
  }
  StateStore states;
  Result<std::vector<OwnedTensor>> want = Interpret(module_, graph(), inputs, states);
  if (!want.ok()) return want.status().ToString();
  std::vector<OwnedTensor> results;
  for (ValueId v : graph().outputs) {
    results.push_back(OwnedTensor::Make(Bound(v).type()));
    out.push_back(results.back().view());
  }
  if (Status s = delegate_->Execute(in, out); !s.ok()) return s.ToString();
  const uint64_t before = GetXnnpackMemory().allocations;
  if (Status s = delegate_->Execute(in, out); !s.ok()) return s.ToString();
  if (GetXnnpackMemory().allocations != before) return "allocates when run again";
  for (size_t i = 0; i < out.size(); ++i)
    if (std::string d = DifferenceFrom((*want)[i].view(), out[i], case_); !d.empty()) return StrCat("result ", i, ": ", d);
  return "";
}

TensorView Harness::Bound(ValueId v) const {
  std::vector<int64_t> sizes;
  for (Dim d : graph().type(v).shape) sizes.push_back(d.Bounds(module_.symbols).max);
  return TensorView(graph().type(v).dtype, sizes, nullptr);
}

std::vector<std::string> Harness::NodeKinds() const {
  std::vector<std::string> kinds;
  const Result<XnnpackBlob> blob = ReadXnnpackBlob(std::as_bytes(std::span(lowered_.payload)), "blob");
  EXPECT_TRUE(blob.ok()) << blob.status().ToString();
  if (blob.ok())
    for (const xn::XNode* node : *blob->graph->xnodes()) kinds.push_back(xn::EnumNameXNodeUnion(node->xnode_union_type()));
  return kinds;
}

void ExpectMatches(const Case& c) {
  Harness h(c);
  const Status check = h.Check();
  ASSERT_TRUE(check.ok()) << check.ToString();
  const Status loaded = h.Load();
  ASSERT_TRUE(loaded.ok()) << loaded.ToString();
  const int64_t sizes[][2] = {{7, 3}, {1, 1}, {9, 7}, {3, 2}, {7, 7}};
  for (const auto& [s0, s1] : sizes) EXPECT_EQ(h.Run(s0, s1), "") << "s0=" << s0 << " s1=" << s1;
  // However they alternate.
  const uint64_t before = GetXnnpackMemory().allocations;
  for (const auto& [s0, s1] : sizes) EXPECT_EQ(h.Run(s0, s1, 5), "") << "s0=" << s0 << " s1=" << s1;
  EXPECT_EQ(GetXnnpackMemory().allocations, before);
}

void ExpectRefused(const std::string& text, const std::string& reason) {
  const Module m = ParseText(Whole(text));
  ASSERT_FALSE(m.graphs.empty());
  const Graph& g = *m.graphs[0];
  Status s;
  for (NodeId id : g.order)
    if (s.ok()) s = XnnpackBackend().check(m, g, g.node(id));
  EXPECT_EQ(s.code(), Code::kUnsupported);
  EXPECT_NE(std::string(s.message()).find(reason), std::string::npos) << s.ToString();
}

}  // namespace dovetail
