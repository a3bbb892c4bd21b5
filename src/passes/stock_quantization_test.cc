// Quantized operators in arithmetic of the stock runtime give what they give themselves: integers equal, floats to within rounding.
#include "passes/stock_quantization.h"

#include <gtest/gtest.h>

#include <random>

#include "ir/interpreter.h"
#include "ir/text.h"
#include "ops/dispatch.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

// Normal floats, some of them ties and far away; any bytes; indices below 5.
OwnedTensor RandomTensor(const TensorType& type, std::mt19937& random) {
  OwnedTensor t = OwnedTensor::Make(type);
  std::normal_distribution<float> normal(0, 2);
  const float odd[] = {0, 0.25f, -0.75f, 1e30f, -1e30f};
  for (int64_t i = 0; i < t.view().numel(); ++i) {
    switch (type.dtype) {
      case DType::kF32: t.view().as<float>()[i] = type.shape.rank() == 2 && random() % 8 == 0 ? odd[random() % 5] : normal(random); break;
      case DType::kBF16: t.view().as<uint16_t>()[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(random)) >> 16); break;
      case DType::kI64: t.view().as<int64_t>()[i] = static_cast<int64_t>(random() % 5); break;
      case DType::kI32: t.view().as<int32_t>()[i] = static_cast<int32_t>(random()) / 4; break;
      default: t.view().as<uint8_t>()[i] = static_cast<uint8_t>(random()); break;
    }
  }
  return t;
}

std::vector<OwnedTensor> Run(const Module& m, const std::vector<OwnedTensor>& inputs) {
  StateStore states;
  auto results = Interpret(m, *m.graphs[0], inputs, states);
  EXPECT_TRUE(results.ok()) << results.status().ToString();
  return results.ok() ? std::move(*results) : std::vector<OwnedTensor>();
}

// The body of a graph @f.
void Check(const std::string& graph) {
  SCOPED_TRACE(graph);
  auto module = Parse("module {\n  graph @f" + graph + "\n}\n");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  module->form = Form::kPartitioned;
  std::mt19937 random(7);
  for (int round = 0; round < 5; ++round) {
    std::vector<OwnedTensor> inputs;
    for (ValueId v : module->graphs[0]->inputs) inputs.push_back(RandomTensor(module->graphs[0]->type(v), random));
    const std::vector<OwnedTensor> want = Run(*module, inputs);
    for (OwnedTensor& t : inputs) t.type.quant = {};  // the integers alone
    auto stock = Parse("module {\n  graph @f" + graph + "\n}\n");
    stock->form = Form::kPartitioned;
    const Status status = RunPass(*FindPass("decompose_for_stock"), *stock);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (NodeId id : stock->graphs[0]->order) EXPECT_TRUE(GetOp(stock->graphs[0]->node(id).op).out_variant.find("dovetail::") == std::string_view::npos);
    const std::vector<OwnedTensor> got = Run(*stock, inputs);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].type.dtype, want[i].type.dtype);
      ASSERT_EQ(got[i].type.shape, want[i].type.shape);
      const Reader<double> a(got[i].view()), b(want[i].view());
      double range = 0;
      for (int64_t k = 0; k < want[i].view().numel(); ++k) range = std::max(range, std::abs(b[k]));
      for (int64_t k = 0; k < want[i].view().numel(); ++k) {
        if (IsInteger(want[i].type.dtype)) ASSERT_EQ(a[k], b[k]) << "element " << k;
        else ASSERT_NEAR(a[k], b[k], 2e-6 * range) << "element " << k;
      }
    }
  }
}

TEST(StockQuantization, PerTensor) {
  for (const char* type : {"i8", "u8", "i32"}) {
    const std::string quantized = StrCat(type, "[7,9]{per_tensor scale=0.5 zero_point=3}");
    Check(StrCat("(%x: f32[7,9]) {\n %q = quantize %x {scale=0.5, zero_point=3, out_dtype=", type, "} : ", quantized, "\n return %q\n }"));
    Check(StrCat("(%q: ", quantized, ") {\n %x = dequantize %q {scale=0.5, zero_point=3} : f32[7,9]\n return %x\n }"));
    Check(StrCat("(%x: f32[7,9]) {\n %q = quantize %x {scale=0.5, zero_point=3, out_dtype=", type, "} : ", quantized, "\n %v = view %q {size=[63]} : ", type,
                 "[63]{per_tensor scale=0.5 zero_point=3}\n %y = dequantize %v {scale=0.5, zero_point=3} : f32[63]\n return %y, %v\n }"));
  }
}

TEST(StockQuantization, DynamicRows) {
  for (const auto& [dims, rows] : {std::pair("1", "7"), {"2", ""}})
    Check(StrCat("(%x: f32[7,9]) {\n %q, %s, %z = quantize_dynamic %x {num_nonbatch_dims=", dims, "} : i8[7,9]{dynamic per_row}, f32[", rows, "], i32[", rows,
                 "]\n return %q, %s, %z\n }"));
}

constexpr char kByteWeight[] = "%w: i8[6,32], %s: f32[6]", kNibbleWeight[] = "%w: u8[6,16], %s: bf16[6,2]";

TEST(StockQuantization, Linear) {
  for (const char* weight : {kByteWeight, kNibbleWeight}) {
    Check(StrCat("(%x: f32[2,1,32], ", weight, ", %b: f32[6]) {\n %y = quantized_linear %x, _, _, %w, %s, %b : f32[2,1,6]\n return %y\n }"));
    Check(StrCat("(%x: f32[32], ", weight, ") {\n %y = quantized_linear %x, _, _, %w, %s, _ : f32[6]\n return %y\n }"));
    Check(StrCat("(%x: f32[2,3,32], ", weight, ", %b: f32[6]) {\n %q, %f, %z = quantize_dynamic %x : i8[2,3,32]{dynamic per_row}, f32[2,3], i32[2,3]\n",
                 " %y = quantized_linear %q, %f, %z, %w, %s, %b : f32[2,3,6]\n return %y\n }"));
  }
}

TEST(StockQuantization, Convolution) {
  const std::string attrs = "{stride=[1], padding=[1], dilation=[1], transposed=false, output_padding=[0], groups=1}";
  Check(StrCat("(%x: f32[2,3,8], %w: i8[4,3,3], %s: f32[4], %b: f32[4]) {\n",
               " %y = quantized_convolution %x, _, _, %w, %s, %b ", attrs, " : f32[2,4,8]\n return %y\n }"));
  Check(StrCat("(%x: f32[2,3,8], %w: i8[4,3,3], %s: f32[4]) {\n",
               " %q, %f, %z = quantize_dynamic %x {num_nonbatch_dims=2} : i8[2,3,8]{dynamic per_row}, f32[2], i32[2]\n",
               " %y = quantized_convolution %q, %f, %z, %w, %s, _ ", attrs, " : f32[2,4,8]\n return %y\n }"));
}

TEST(StockQuantization, Embedding) {
  for (const char* weight : {kByteWeight, kNibbleWeight})
    for (const char* dims : {"", "4", "2,3"})
      Check(StrCat("(%i: i64[", dims, "], ", weight, ") {\n %y = quantized_embedding %w, %s, %i : f32[", dims, *dims ? "," : "", "32]\n return %y\n }"));
}

}  // namespace
}  // namespace dovetail
