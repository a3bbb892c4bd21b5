#include "quant/static_int8.h"

#include "ops/quantization.h"
#include "quant/static_samples.h"

namespace dovetail {
namespace {

using namespace samples;

// A graph quantized to int8 with calls that are given as the values of its one input %x.
struct Quantized : QuantizedSample {
  Quantized(const std::string& text, const std::vector<OwnedTensor>& calls, std::vector<std::string> keep_float = {})
      : QuantizedSample(text, "int8", OneInput(calls), std::move(keep_float)) {}
  static std::vector<Call> OneInput(const std::vector<OwnedTensor>& calls) {
    std::vector<Call> each;
    for (const OwnedTensor& x : calls) each.push_back({x});
    return each;
  }
  double sqnr(const OwnedTensor& x) const { return QuantizedSample::sqnr({x}); }
  // The parameters of the quantize node that reads a float value.
  QuantParams params_read(std::string_view name) const {
    for (NodeId id : graph().order)
      if (const Node& n = graph().node(id); n.op == OpId::kQuantize && graph().value(n.operands[0]).name == name) return graph().type(n.results[0]).quant;
    ADD_FAILURE() << name << " is not quantized in\n" << Print(after);
    return {};
  }
  const LayerReport& layer(std::string_view path) const {
    for (const LayerReport& l : report.layers)
      if (l.path == path) return l;
    ADD_FAILURE() << "no layer " << path;
    static const LayerReport none;
    return none;
  }
};

OwnedTensor Image(unsigned seed, int64_t channels = 2, float scale = 1) {
  return Floats({Dim(1), Dim(channels), Dim(6), Dim(6)}, Normal(static_cast<size_t>(channels) * 36, seed, scale));
}
std::vector<OwnedTensor> Images(int64_t channels = 2) {
  std::vector<OwnedTensor> images;
  for (unsigned i = 0; i < 24; ++i) images.push_back(Image(i, channels));
  return images;
}

const char kConvolution[] = "{stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1}";

std::string ResidualNet() {
  return "module {\n" + ConstantLine("c1.weight", "4,2,3,3", Normal(72, 1, 0.3f)) + ConstantLine("c1.bias", "4", Normal(4, 2)) +
         ConstantLine("c2.weight", "4,4,3,3", Normal(144, 3, 0.2f)) + ConstantLine("fc.weight", "3,4", Normal(12, 4)) +
         ConstantLine("fc.bias", "3", Normal(3, 5)) +
         "  graph @f(%x: f32[1,2,6,6]) {\n    %w1 = const @c1.weight : f32[4,2,3,3]\n    %b1 = const @c1.bias : f32[4]\n"
         "    %w2 = const @c2.weight : f32[4,4,3,3]\n"
         "    %w3 = const @fc.weight : f32[3,4]\n    %b3 = const @fc.bias : f32[3]\n    %c1 = convolution %x, %w1, %b1 " + kConvolution +
         " : f32[1,4,6,6]\n    %r1 = relu %c1 : f32[1,4,6,6]\n    %c2 = convolution %r1, %w2, _ " + kConvolution +
         " : f32[1,4,6,6]\n    %s = add %c2, %r1 : f32[1,4,6,6]\n    %r2 = relu %s : f32[1,4,6,6]\n    %m = mean %r2 {dim=[2,3], keepdim=true} : f32[1,4,1,1]\n"
         "    %v = view %m {size=[1,4]} : f32[1,4]\n    %y = linear %v, %w3, %b3 : f32[1,3]\n    return %y\n  }\n}\n";
}

// The same net by hand, each value rounded to the parameters that the quantized graph has for it.
class FakeQuantized {
 public:
  explicit FakeQuantized(const Quantized& q) : q_(q) {}

  std::vector<float> Run(std::vector<float> x) const {
    Round(x, q_.params_read("x"));
    const float sx = q_.params_read("x").scale;
    std::vector<float> r1 = Convolve(x, 2, Weight("c1.weight", 4), Bias("c1.bias.rounded", "c1.weight", sx));
    for (float& v : r1) v = std::max(v, 0.0f);
    Round(r1, q_.type("r1").quant);
    std::vector<float> s = Convolve(r1, 4, Weight("c2.weight", 4), Bias("c2.weight.correction", "c2.weight", q_.type("r1").quant.scale));
    Round(s, q_.type("c2").quant);
    for (size_t i = 0; i < s.size(); ++i) s[i] = std::max(s[i] + r1[i], 0.0f);
    Round(s, q_.type("r2").quant);
    std::vector<float> m(4);
    for (size_t i = 0; i < s.size(); ++i) m[i / 36] += s[i] / 36;
    Round(m, q_.type("m").quant);
    const std::vector<float> w = Weight("fc.weight", 3);
    std::vector<float> y = Bias("fc.bias.rounded", "fc.weight", q_.type("m").quant.scale);
    for (size_t i = 0; i < 12; ++i) y[i / 4] += w[i] * m[i % 4];
    Round(y, q_.type("y").quant);
    return y;
  }

 private:
  static void Round(std::vector<float>& values, const QuantParams& q) {
    const float zero = static_cast<float>(q.zero_point);
    for (float& v : values) v = (std::clamp(std::nearbyint(v / q.scale) + zero, -128.0f, 127.0f) - zero) * q.scale;
  }
  static std::vector<float> Data(const Module& module, std::string_view name) {
    for (const Constant& c : module.constants)
      if (c.name == name) {
        std::vector<float> v(static_cast<size_t>(c.type.shape.numel().value()));
        c.CopyTo(reinterpret_cast<std::byte*>(v.data()));
        return v;
      }
    ADD_FAILURE() << name;
    return {};
  }
  std::vector<float> Scales(std::string_view name, size_t channels) const {
    const std::vector<float> w = Data(q_.before, name);
    std::vector<float> scales(channels);
    for (size_t i = 0; i < w.size(); ++i) scales[i * channels / w.size()] = std::max(scales[i * channels / w.size()], std::abs(w[i]) / 127);
    return scales;
  }
  std::vector<float> Weight(std::string_view name, size_t channels) const {
    std::vector<float> w = Data(q_.before, name), scales = Scales(name, channels);
    for (size_t i = 0; i < w.size(); ++i) w[i] = std::nearbyint(w[i] / scales[i * channels / w.size()]) * scales[i * channels / w.size()];
    return w;
  }
  // Of the quantized graph (bias_correction_test.cc says what it must be), in whole steps.
  std::vector<float> Bias(std::string_view name, std::string_view weight, float input_scale) const {
    std::vector<float> b = Data(q_.after, name);
    if (b.empty()) return std::vector<float>(4);  // there is none: an error by now
    const std::vector<float> scales = Scales(weight, b.size());
    for (size_t i = 0; i < b.size(); ++i) {
      const float steps = b[i] / (scales[i] * input_scale);
      EXPECT_NEAR(steps, std::nearbyint(steps), 0.01) << name;
    }
    return b;
  }
  static std::vector<float> Convolve(const std::vector<float>& x, int channels, const std::vector<float>& w, const std::vector<float>& bias) {
    std::vector<float> y(4 * 36);
    for (int o = 0; o < 4; ++o)
      for (int i = 0; i < 36; ++i) {
        float sum = bias[static_cast<size_t>(o)];
        for (int c = 0; c < channels; ++c)
          for (int t = 0; t < 9; ++t) {
            const int row = i / 6 + t / 3 - 1, column = i % 6 + t % 3 - 1;
            if (row < 0 || row > 5 || column < 0 || column > 5) continue;
            sum += x[static_cast<size_t>(c * 36 + row * 6 + column)] * w[static_cast<size_t>((o * channels + c) * 9 + t)];
          }
        y[static_cast<size_t>(o * 36 + i)] = sum;
      }
    return y;
  }
  const Quantized& q_;
};

TEST(StaticInt8, EqualsFakeQuantization) {
  const Quantized q(ResidualNet(), Images());
  EXPECT_EQ(q.count(OpId::kQuantize), 1u) << Print(q.after);    // the input
  EXPECT_EQ(q.count(OpId::kDequantize), 1u) << Print(q.after);  // the output
  double steps = 0;
  for (unsigned seed = 50; seed < 80; ++seed) {
    const OwnedTensor x = Image(seed);
    auto got = RunOnce(q.after, {x});
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    const std::vector<float> want = FakeQuantized(q).Run(Values(x)), y = Values((*got)[0]);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_LE(std::abs(y[i] - want[i]), q.type("y").quant.scale * 1.01f);
      steps += std::abs(y[i] - want[i]) / q.type("y").quant.scale > 0.5f;
    }
  }
  EXPECT_LE(steps, 3);  // sums in another order may round to the next integer, rarely
}

TEST(StaticInt8, IsCloseToFloat) {
  const Quantized q(ResidualNet(), Images());
  double sum = 0;
  for (unsigned seed = 50; seed < 58; ++seed) sum += q.sqnr(Image(seed));
  EXPECT_GE(sum / 8, 30);
}

TEST(StaticInt8, ReluIsFusedBeforeTheRangeIsTaken) {
  const Quantized q(ResidualNet(), Images());
  EXPECT_EQ(q.type("c1"), q.type("r1"));
  EXPECT_EQ(q.type("s"), q.type("r2"));
  EXPECT_EQ(q.type("r1").quant.zero_point, -128);
  EXPECT_EQ(q.type("r2").quant.zero_point, -128);
  EXPECT_EQ(q.type("m").quant, q.type("v").quant);
  EXPECT_NE(q.type("c2").quant.zero_point, -128);
  EXPECT_EQ(q.layer("c1").became, "i8 per_tensor x i8 per_channel");
  EXPECT_EQ(q.report.layers.size(), 3u);
}

std::string OneLinear(const std::vector<float>& weight, const std::vector<float>& bias, const std::string& tail = "    return %y\n") {
  return "module {\n" + ConstantLine("fc.weight", "4,8", weight) + ConstantLine("fc.bias", "4", bias) +
         "  graph @f(%x: f32[2,8]) {\n    %w = const @fc.weight : f32[4,8]\n    %b = const @fc.bias : f32[4]\n"
         "    %y = linear %x, %w, %b : f32[2,4]\n" + tail + "  }\n}\n";
}
OwnedTensor Rows(const std::vector<float>& values) { return Floats({Dim(2), Dim(8)}, values); }

TEST(StaticInt8, NeedsCalibration) {
  Module m = Parsed(OneLinear(Normal(32, 1), Normal(4, 2)));
  QuantizeOptions options;
  options.scheme = FindScheme("int8");
  QuantizeReport report;
  const std::string message = Quantize(m, options, report).ToString();
  EXPECT_NE(message.find("--calibrate"), std::string::npos) << message;
  EXPECT_NE(message.find("int8-dynamic needs none"), std::string::npos) << message;
}

TEST(StaticInt8, ValuesThatAreNotFiniteAreNamedAndLeftOut) {
  const std::string text = OneLinear(Normal(32, 1), Normal(4, 2));
  std::vector<float> bad = Normal(16, 3);
  bad[3] = NAN;
  bad[4] = -INFINITY;
  const Quantized clean(text, {Rows(Normal(16, 4))}), q(text, {Rows(Normal(16, 4)), Rows(bad)});
  ASSERT_EQ(q.report.warnings.size(), 1u);
  const std::string& w = q.report.warnings[0];
  EXPECT_NE(w.find("the input %x: 1 NaN and 1 infinite, first in call"), std::string::npos) << w;
  EXPECT_NE(w.find("1.npz"), std::string::npos) << w;
  EXPECT_NE(w.find("%y of linear"), std::string::npos) << w;
  EXPECT_TRUE(clean.report.warnings.empty());
  EXPECT_GE(q.sqnr(Rows(Normal(16, 4))), 30);
}

TEST(StaticInt8, DegenerateRanges) {
  const std::string text = OneLinear(Normal(32, 1), Normal(4, 2));
  for (float v : {0.0f, 3.0f, -3.0f}) {
    const OwnedTensor x = Rows(std::vector<float>(16, v));
    const Quantized q(text, {x});
    EXPECT_GE(q.sqnr(x), 40) << v;
  }
  const Quantized nothing(text, {Rows(std::vector<float>(16, NAN))});
  EXPECT_EQ(nothing.layer("fc").reason, "no calibration call gave it a value");
  ASSERT_EQ(nothing.report.warnings.size(), 2u);
  EXPECT_NE(nothing.report.warnings[1].find("the input %x; %y of linear"), std::string::npos) << nothing.report.warnings[1];
  EXPECT_EQ(nothing.count(OpId::kQuantizedLinear), 0u);
}

// A bias far beyond the products, channels of zeros, channels of very different size.
TEST(StaticInt8, BiasesFitIntoThirtyBits) {
  std::vector<float> weight = Normal(32, 1);
  for (size_t i = 0; i < 8; ++i) {
    weight[i] *= 1e-12f;
    weight[8 + i] = 0;
    weight[16 + i] *= 1e-3f;
  }
  const std::vector<float> bias = {1, 0.7f, -0.4f, 0.1f};
  std::vector<float> x = Normal(16, 5);
  const Quantized q(OneLinear(weight, bias), {Rows(x)});
  EXPECT_GE(q.sqnr(Rows(x)), 35);
  const float input = q.params_read("x").scale;
  for (NodeId id : q.graph().order) {
    const Node& n = q.graph().node(id);
    if (n.op != OpId::kQuantizedLinear) continue;
    const Constant &scale = *GetConstant(q.after, q.graph(), n.operands[4]), &rounded = *GetConstant(q.after, q.graph(), n.operands[5]);
    const float *s = reinterpret_cast<const float*>(scale.bytes().data()), *b = reinterpret_cast<const float*>(rounded.bytes().data());
    for (int c = 0; c < 4; ++c) {
      const double units = static_cast<double>(b[c]) / (static_cast<double>(input) * static_cast<double>(s[c]));
      EXPECT_LE(std::abs(units), 0x1p30) << c;
      EXPECT_NEAR(units, std::nearbyint(units), std::abs(units) * 1e-6) << c;
      EXPECT_NEAR(b[c], bias[static_cast<size_t>(c)], q.type("y").quant.scale * (c == 1 ? 0.01f : 1)) << c;
      const float factor = input * s[c] / q.type("y").quant.scale;
      EXPECT_LT(factor, 256) << c;
      EXPECT_GE(factor, 0x1p-32f) << c;
    }
  }
}

// A result that is always 0 where the products are large: the factor of requantization stays below 256.
TEST(StaticInt8, ResultsAreNotFinerThanTheKernelsTake) {
  std::vector<float> weight = Normal(32, 1, 1e6f);
  const std::string relu = "    %r = relu %y : f32[2,4]\n    return %r\n";
  const Quantized q(OneLinear(weight, std::vector<float>(4), relu), {Rows(std::vector<float>(16, 1e-30f)), Rows(std::vector<float>(16, 0))});
  const Quantized large(OneLinear(weight, std::vector<float>(4, -1e12f), relu), {Rows(Normal(16, 2))});
  for (const Quantized* each : {&q, &large})
    for (NodeId id : each->graph().order) {
      const Node& n = each->graph().node(id);
      if (n.op != OpId::kQuantizedLinear) continue;
      const Constant& scale = *GetConstant(each->after, each->graph(), n.operands[4]);
      for (int c = 0; c < 4; ++c)
        EXPECT_LT(reinterpret_cast<const float*>(scale.bytes().data())[c] * each->params_read("x").scale / each->graph().type(n.results[0]).quant.scale, 256);
    }
  EXPECT_EQ(large.count(OpId::kQuantizedLinear), 1u);
}

TEST(StaticInt8, KeepFloatAndReasons) {
  const Quantized q(ResidualNet(), Images(), {"c*"});
  EXPECT_EQ(q.layer("c1").reason, "--keep-float asks for it");
  EXPECT_EQ(q.layer("c2").reason, "--keep-float asks for it");
  EXPECT_EQ(q.layer("fc").became, "i8 per_tensor x i8 per_channel");
  EXPECT_EQ(q.count(OpId::kQuantize), 1u);  // nothing between float layers is quantized
  EXPECT_EQ(q.type("r1").dtype, DType::kF32);
}

// Cheap operators between float ones stay float.
TEST(StaticInt8, NoIslands) {
  const Quantized q(OneLinear(Normal(32, 1), Normal(4, 2), R"(    %g = gelu %y : f32[2,4]
    %m = mul %g, %g : f32[2,4]
    %s = sigmoid %m : f32[2,4]
    %e = exp %s : f32[2,4]
    return %e
)"),
                    {Rows(Normal(16, 4))});
  EXPECT_EQ(q.count(OpId::kQuantize), 1u) << Print(q.after);
  EXPECT_EQ(q.type("m").dtype, DType::kF32);
  EXPECT_EQ(q.type("s").dtype, DType::kF32);
}

std::string Between(const std::string& middle, const std::string& last, const std::string& more = "") {
  return "module {\n" + ConstantLine("a.weight", "4,2,3,3", Normal(72, 1, 0.3f)) + ConstantLine("b.weight", "4,4,3,3", Normal(144, 3, 0.3f)) + more +
         "  graph @f(%x: f32[1,2,6,6]) {\n    %wa = const @a.weight : f32[4,2,3,3]\n    %wb = const @b.weight : f32[4,4,3,3]\n"
         "    %a = convolution %x, %wa, _ " + kConvolution +
         " : f32[1,4,6,6]\n" + middle + "    %b = convolution %" + last + ", %wb, _ " + kConvolution + " : f32[1,4,6,6]\n    return %b\n  }\n}\n";
}

TEST(StaticInt8, ValuesThatOnlyMoveShareParameters) {
  const Quantized q(Between(R"(    %lo = slice %a {dim=1, start=0, end=2} : f32[1,2,6,6]
    %hi = slice %a {dim=1, start=2, end=4} : f32[1,2,6,6]
    %t = permute %hi {dims=[0,1,3,2]} : f32[1,2,6,6]
    %c = cat %t, %lo {dim=1} : f32[1,4,6,6]
    %p, %i = max_pool2d_with_indices %c {kernel_size=[3,3], stride=[1,1], padding=[1,1]} : f32[1,4,6,6], i64[1,4,6,6]
    %s = add %p, %c : f32[1,4,6,6]
)", "s"), Images());
  for (const char* name : {"lo", "hi", "t", "c", "p"}) EXPECT_EQ(q.type(name).quant, q.type("a").quant) << name;
  EXPECT_NE(q.type("s").quant, q.type("a").quant);
  EXPECT_EQ(q.count(OpId::kDequantize), 1u) << Print(q.after);
  EXPECT_GE(q.sqnr(Image(5)), 30);
}

// Constants among the operands: one joins a cat with its parameters, one has its own.
TEST(StaticInt8, ConstantOperandsBecomeIntegers) {
  const Quantized q(Between(R"(    %k = const @scale : f32[4,1,1]
    %e = const @extra : f32[1,2,6,6]
    %lo = slice %a {dim=1, start=0, end=2} : f32[1,2,6,6]
    %c = cat %lo, %e {dim=1} : f32[1,4,6,6]
    %s = mul %c, %k : f32[1,4,6,6]
)", "s", ConstantLine("scale", "4,1,1", {0.5f, 2, 1, -0.25f}) + ConstantLine("extra", "1,2,6,6", Normal(72, 7, 20))), Images());
  EXPECT_EQ(q.type("lo").quant, q.type("c").quant);
  EXPECT_GE(RangeOfParams(q.type("c").quant).high, 30);
  EXPECT_EQ(q.count(OpId::kQuantize), 1u) << Print(q.after);
  EXPECT_GE(q.sqnr(Image(5)), 30);
}

TEST(StaticInt8, FixedParameters) {
  const std::string gate = "    %g = sigmoid %a : f32[1,4,6,6]\n    %h = tanh %a : f32[1,4,6,6]\n    %s = mul %g, %h : f32[1,4,6,6]\n";
  const Quantized q(Between(gate, "s"), Images());
  EXPECT_EQ(q.type("g").quant, QuantParams::PerTensor(1.0f / 256, -128));
  EXPECT_EQ(q.type("h").quant, QuantParams::PerTensor(1.0f / 128, 0));
  EXPECT_GE(q.sqnr(Image(5)), 30);
  // Joined with other values it cannot keep them: it stays float.
  const Quantized joined(Between(R"(    %lo = slice %a {dim=1, start=0, end=2} : f32[1,2,6,6]
    %g = sigmoid %lo : f32[1,2,6,6]
    %c = cat %g, %lo {dim=1} : f32[1,4,6,6]
)", "c"), Images());
  EXPECT_EQ(joined.type("g").dtype, DType::kF32);
  EXPECT_EQ(joined.type("c").quant, joined.type("a").quant);
  EXPECT_GE(joined.sqnr(Image(5)), 30);
}

// y = c(x); relu(c(relu(y)) + y), one weight and one bias under two input scales.
TEST(StaticInt8, AModuleAppliedTwice) {
  const std::string text = "module {\n" + ConstantLine("c.weight", "2,2,3,3", Normal(36, 1, 0.3f)) + ConstantLine("c.bias", "2", {0.2f, -0.1f}) +
                           "  graph @f(%x: f32[1,2,6,6]) {\n    %w = const @c.weight : f32[2,2,3,3]\n    %b = const @c.bias : f32[2]\n"
                           "    %y = convolution %x, %w, %b " +
                           kConvolution + " : f32[1,2,6,6]\n    %r = relu %y : f32[1,2,6,6]\n    %z = convolution %r, %w, %b " + kConvolution +
                           " : f32[1,2,6,6]\n    %s = add %z, %y : f32[1,2,6,6]\n    %o = relu %s : f32[1,2,6,6]\n    return %o\n  }\n}\n";
  const Quantized q(text, Images());
  EXPECT_EQ(q.count(OpId::kQuantizedConvolution), 2u);
  EXPECT_EQ(q.type("y").quant, q.type("r").quant);
  EXPECT_NE(q.type("y").quant.zero_point, -128);  // its negative part is needed for the sum
  EXPECT_GE(q.sqnr(Image(5)), 30);
  size_t weights = 0, biases = 0;
  for (const Constant& c : q.after.constants) {
    weights += c.type.dtype == DType::kI8;
    biases += c.name.find("rounded") != std::string::npos;
  }
  EXPECT_EQ(weights, 1u);
  EXPECT_EQ(biases, 2u);
}

// Neither a constant of zeros nor a branch that gave only zeros coarsens the small numbers that it is added to.
TEST(StaticInt8, ZerosBesideSmallNumbers) {
  const std::string text = "module {\n" + ConstantLine("c.weight", "2,2,3,3", Normal(36, 1, 1e-4f)) + ConstantLine("z.weight", "2,2,3,3", std::vector<float>(36)) +
                           ConstantLine("shift", "2,1,1", {0, 0}) +
                           "  graph @f(%x: f32[1,2,6,6]) {\n    %w = const @c.weight : f32[2,2,3,3]\n    %w0 = const @z.weight : f32[2,2,3,3]\n"
                           "    %shift = const @shift : f32[2,1,1]\n    %y = convolution %x, %w, _ " +
                           kConvolution + " : f32[1,2,6,6]\n    %z = add %y, %shift : f32[1,2,6,6]\n    %none = convolution %x, %w0, _ " + kConvolution +
                           " : f32[1,2,6,6]\n    %s = add %none, %z : f32[1,2,6,6]\n    %o = convolution %s, %w, _ " + kConvolution +
                           " : f32[1,2,6,6]\n    return %o\n  }\n}\n";
  const Quantized q(text, Images());
  EXPECT_EQ(q.count(OpId::kQuantizedConvolution), 3u);
  EXPECT_EQ(q.count(OpId::kDequantize), 1u) << Print(q.after);
  EXPECT_GE(q.sqnr(Image(5)), 30);
}

TEST(StaticInt8, TransposedConvolutions) {
  for (int groups : {1, 2}) {
    std::vector<float> w = Normal(static_cast<size_t>(4 * 6 / groups * 9), 1, 0.3f);
    for (size_t i = 0; i < w.size(); ++i) w[i] *= std::pow(10.0f, static_cast<float>(i / 9 % static_cast<size_t>(6 / groups) % 3));
    const std::string shape = StrCat("4,", 6 / groups, ",3,3");
    const std::string text = "module {\n" + ConstantLine("c.weight", shape, w) + "  graph @f(%x: f32[1,4,6,6]) {\n    %w = const @c.weight : f32[" + shape +
                             "]\n    %y = convolution %x, %w, _ {stride=[1,1], padding=[1,1], dilation=[1,1], transposed=true, output_padding=[0,0], groups=" +
                             std::to_string(groups) + "} : f32[1,6,6,6]\n    return %y\n  }\n}\n";
    const Quantized q(text, Images(4));
    if (groups == 1) {
      EXPECT_EQ(q.layer("c").became, "i8 per_tensor x i8 per_channel");
      EXPECT_GE(q.sqnr(Image(5, 4)), 30);
    } else {
      EXPECT_NE(q.layer("c").reason.find("in groups"), std::string::npos);
      EXPECT_EQ(q.count(OpId::kQuantizedConvolution), 0u);
    }
  }
}

TEST(StaticInt8, SameBytesEachTime) {
  const Quantized a(ResidualNet(), Images()), b(ResidualNet(), Images());
  EXPECT_EQ(Print(a.after), Print(b.after));
}

// One layer whose inputs are far from zero in the mean: what rounding its weights shifts, its bias takes back.
TEST(StaticInt8, RoundingWeightsDoesNotShiftResults) {
  const std::string layers[] = {"linear %x, %w, _", "linear %x, %w, %b"};
  for (const std::string& layer : layers) {
    const std::string text = "module {\n" + ConstantLine("w", "3,64", Normal(192, 1)) + ConstantLine("b", "3", {1, -2, 30}) +
                             "  graph @f(%x: f32[16,64]) {\n    %w = const @w : f32[3,64]\n    %b = const @b : f32[3]\n    %y = " + layer +
                             " : f32[16,3]\n    return %y\n  }\n}\n";
    std::vector<OwnedTensor> calls;
    for (unsigned i = 0; i < 8; ++i) {
      std::vector<float> x = Normal(1024, 10 + i, 0.3f);
      for (float& v : x) v += 4;
      calls.push_back(Floats({Dim(16), Dim(64)}, x));
    }
    const Quantized q(text, calls);
    double shift[3] = {};
    for (const OwnedTensor& x : calls) {
      auto want = RunOnce(q.before, {x}), got = RunOnce(q.after, {x});
      ASSERT_TRUE(want.ok() && got.ok());
      for (size_t i = 0; i < 48; ++i) shift[i % 3] += static_cast<double>(Values((*got)[0])[i] - Values((*want)[0])[i]) / 128;
    }
    // Rounding the results themselves leaves their step / sqrt(12 * 128), rounding the inputs less.
    for (double s : shift) EXPECT_LE(std::abs(s), static_cast<double>(q.type("y").quant.scale) * 0.1) << layer;
  }
}

// Calls that are 200 times quieter than others are below the steps of their one range: they are quantized by call.
TEST(StaticInt8, CallsThatDifferTooMuchAreQuantizedWhenTheyCome) {
  const std::string text = "module {\n" + ConstantLine("a.weight", "8,16", Normal(128, 1)) + ConstantLine("b.weight", "4,8", Normal(32, 2)) +
                           "  graph @f(%x: f32[4,16]) {\n    %wa = const @a.weight : f32[8,16]\n    %wb = const @b.weight : f32[4,8]\n"
                           "    %a = linear %x, %wa, _ : f32[4,8]\n    %t = tanh %a : f32[4,8]\n    %y = linear %t, %wb, _ : f32[4,4]\n    return %y\n  }\n}\n";
  const auto calls = [](std::vector<float> loudness) {
    std::vector<OwnedTensor> made;
    for (size_t i = 0; i < loudness.size(); ++i) made.push_back(Floats({Dim(4), Dim(16)}, Normal(64, static_cast<unsigned>(i), loudness[i])));
    return made;
  };
  const Quantized even(text, calls({1, 0.7f, 0, 0.5f}));
  EXPECT_EQ(even.layer("a").became, "i8 per_tensor x i8 per_channel");
  EXPECT_EQ(even.layer("b").became, "i8 per_tensor x i8 per_channel");

  const Quantized q(text, calls({1, 0.7f, 0, 0.5f, 0.005f}));
  EXPECT_EQ(q.layer("a").became, "i8 dynamic per_row x i8 per_channel") << q.layer("a").reason << Print(q.after);
  EXPECT_EQ(q.layer("a").reason, "");
  EXPECT_EQ(q.count(OpId::kQuantizeDynamic), 1u + (q.layer("b").became.find("dynamic") != std::string::npos)) << Print(q.after);
  for (float loudness : {1.0f, 0.005f}) EXPECT_GE(q.sqnr(Floats({Dim(4), Dim(16)}, Normal(64, 77, loudness))), 30) << loudness;
  EXPECT_LT(even.sqnr(Floats({Dim(4), Dim(16)}, Normal(64, 77, 0.005f))), 15);
}

// One outlier in 32768 elements. Where results are clamped it does not matter, and steps get finer; where they are not, it keeps its value.
TEST(StaticInt8, RangesClipAsFarAsTheOutputsAllow) {
  std::vector<OwnedTensor> calls;
  for (unsigned i = 0; i < 4; ++i) {
    std::vector<float> x = Normal(8192, i, 0.3f);
    if (i == 0) x[100] = 6;
    calls.push_back(Floats({Dim(1), Dim(2), Dim(64), Dim(64)}, x));
  }
  const auto text = [](const std::string& end) {
    return "module {\n" + ConstantLine("w", "2,2,3,3", Normal(36, 9, 0.3f)) + "  graph @f(%x: f32[1,2,64,64]) {\n    %w = const @w : f32[2,2,3,3]\n" +
           "    %c = convolution %x, %w, _ " + kConvolution + " : f32[1,2,64,64]\n" + end;
  };
  const Quantized clamped(text("    %y = hardtanh %c {min_val=-1.0, max_val=1.0} : f32[1,2,64,64]\n    return %y\n  }\n}\n"), calls);
  const Quantized open(text("    return %c\n  }\n}\n"), calls);
  EXPECT_LT(clamped.params_read("x").scale, 0.7f * open.params_read("x").scale);
  EXPECT_GE(clamped.sqnr(calls[1]), 31);  // measured 32.5
}

}  // namespace
}  // namespace dovetail
