// Kernels of quantized operators against the reference, as every kernel is (kernels_test.cc): integers equal, floats within 1e-5 of their range.
#include "kernels/kernel_testing.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

SampleTensor Bytes(std::vector<int64_t> sizes, DType type = DType::kI8) {
  SampleTensor t = Integers(std::move(sizes), 256, DType::kU8);
  t.dtype = type;
  return t;
}
SampleTensor HalfFloats(std::vector<int64_t> sizes) {
  const SampleTensor floats = Floats(sizes, 0.2f);
  SampleTensor t{DType::kBF16, std::move(sizes), {}};
  t.bytes.resize(t.view().nbytes());
  const uint32_t* bits = floats.view().as<uint32_t>();
  for (int64_t i = 0; i < t.view().numel(); ++i) t.view().as<uint16_t>()[i] = static_cast<uint16_t>(bits[i] >> 16);
  return t;
}

// A weight with its scales, of values around 1.
std::vector<SampleTensor> ByteWeight(int64_t rows, int64_t columns) { return {Bytes({rows, columns}), Floats({rows}, 1.0f / 64)}; }
std::vector<SampleTensor> NibbleWeight(int64_t rows, int64_t columns, int64_t block) {
  return {Bytes({rows, columns / 2}, DType::kU8), HalfFloats({rows, columns / block})};
}

// Of a float input and of the same as dynamic rows.
void CheckLinear(std::vector<int64_t> input, const std::vector<SampleTensor>& weight, bool bias) {
  const SampleTensor x = Floats(input), b = bias ? Floats({weight[0].sizes[0]}) : SampleTensor();
  Check(Case(OpId::kQuantizedLinear, {x, SampleTensor(), SampleTensor(), weight[0], weight[1], b}));
  std::vector<SampleTensor> rows;
  ASSERT_TRUE(RunKernel(Case(OpId::kQuantizeDynamic, {x}), GetOp(OpId::kQuantizeDynamic).reference, nullptr, nullptr, &rows).ok());
  Check(Case(OpId::kQuantizedLinear, {rows[0], rows[1], rows[2], weight[0], weight[1], b}));
}

TEST(QuantizedKernelsTest, Elementwise) {
  for (std::vector<int64_t> sizes : {std::vector<int64_t>{}, {0}, {7}, {3, 33}, {50001}}) {
    SampleTensor x = Floats(sizes, 2);
    const float odd[] = {0.25f, -0.75f, 1.25f, kNan, kInf, -kInf, 1e30f};  // ties to even, and what is no number or too large
    std::copy_n(odd, std::min<int64_t>(7, x.view().numel()), x.view().as<float>());
    for (DType type : {DType::kI8, DType::kU8, DType::kU16, DType::kI16, DType::kI32})
      for (int zero_point : {0, 3, 127}) Check(Case(OpId::kQuantize, {x}, {{"scale", 0.5}, {"zero_point", zero_point}, {"out_dtype", type}}));
    Check(Case(OpId::kQuantize, {x}, {{"scale", 1e-4}, {"zero_point", 40000}, {"out_dtype", DType::kU16}}));
    std::vector<SampleTensor> wide;
    ASSERT_TRUE(RunKernel(Case(OpId::kQuantize, {x}, {{"scale", 1e-4}, {"zero_point", 40000}, {"out_dtype", DType::kU16}}),
                          GetOp(OpId::kQuantize).reference, nullptr, nullptr, &wide).ok());
    Check(Case(OpId::kDequantize, {wide[0]}, {{"scale", 1e-4}, {"zero_point", 40000}}));
    for (DType type : {DType::kI8, DType::kU8}) Check(Case(OpId::kDequantize, {Bytes(sizes, type)}, {{"scale", 0.013}, {"zero_point", -7}}));
  }
}

TEST(QuantizedKernelsTest, DynamicRows) {
  for (int64_t width : {0, 1, 3, 8, 64, 257})
    for (std::vector<int64_t> sizes : {std::vector<int64_t>{width}, {5, width}, {2, 300, width}, {0, width}}) {
      Check(Case(OpId::kQuantizeDynamic, {Floats(sizes, 3)}));
      Check(Case(OpId::kQuantizeDynamic, {Floats(sizes)}, {{"num_nonbatch_dims", static_cast<int64_t>(sizes.size())}}));
    }
  SampleTensor extreme = Floats({6, 9});
  for (float& x : std::span(extreme.view().as<float>(), 9)) x = std::abs(x);
  for (float& x : std::span(extreme.view().as<float>() + 9, 9)) x = 0;
  const float values[] = {kNan, 1e30f, kInf, -1e-42f};
  for (int i = 0; i < 4; ++i) extreme.view().as<float>()[(i + 2) * 9 + i] = values[i];
  for (float& x : std::span(extreme.view().as<float>() + 45, 9)) x = -1e-42f;  // a range whose inverse is infinite
  Check(Case(OpId::kQuantizeDynamic, {extreme}));
}

TEST(QuantizedKernelsTest, Linear) {
  for (int64_t rows : {0, 1, 2, 4, 70})
    for (int64_t columns : {1, 3, 4, 21}) {
      for (int64_t inner : {1, 7, 8, 65, 600, 1100}) CheckLinear({rows, inner}, ByteWeight(columns, inner), Pick({0, 1}) == 1);
      for (int64_t block : {3, 8, 16, 32, 64, 1100}) {
        const int64_t inner = 2 * block * Pick({1, 2, 5});
        CheckLinear({rows, inner}, NibbleWeight(columns, inner, block), Pick({0, 1}) == 1);
      }
    }
  CheckLinear({32}, NibbleWeight(5, 32, 32), true);
  CheckLinear({2, 1, 3, 64}, NibbleWeight(5, 64, 32), false);
  CheckLinear({3, 0}, ByteWeight(5, 0), true);
  CheckLinear({0, 3, 64}, NibbleWeight(5, 64, 64), true);
  CheckLinear({1, 576}, NibbleWeight(1536, 576, 32), false);
  CheckLinear({1, 576}, ByteWeight(1536, 576), false);
  // The largest sums: all integers at their limits.
  SampleTensor ones = Integers({2, 40000}, 1, DType::kU8), weight = Integers({3, 40000}, 1, DType::kU8), zero_points = Integers({2}, 1, DType::kI32);
  ones.dtype = weight.dtype = DType::kI8;
  std::ranges::fill(ones.bytes, std::byte{0x80});
  std::ranges::fill(weight.bytes, std::byte{0x81});
  std::ranges::fill(std::span(zero_points.view().as<int32_t>(), 2), 127);
  Check(Case(OpId::kQuantizedLinear, {ones, Floats({2}), zero_points, weight, Floats({3}), SampleTensor()}));
}

TEST(QuantizedKernelsTest, Embedding) {
  for (DType type : {DType::kI32, DType::kI64}) {
    for (const std::vector<SampleTensor>& w : {ByteWeight(50, 37), NibbleWeight(50, 96, 32), NibbleWeight(50, 30, 3), NibbleWeight(50, 2048, 64)}) {
      Check(Case(OpId::kQuantizedEmbedding, {w[0], w[1], Integers({2, 9}, 50, type)}));
      Check(Case(OpId::kQuantizedEmbedding, {w[0], w[1], Integers({700}, 50, type)}));
      Check(Case(OpId::kQuantizedEmbedding, {w[0], w[1], Integers({}, 50, type)}));
      Check(Case(OpId::kQuantizedEmbedding, {w[0], w[1], Integers({40}, 90, type)}));  // out of range
    }
  }
}

// Memory for a method is sized once, for the upper bounds of its shapes.
TEST(QuantizedKernelsTest, ScratchOfTheUpperBoundServesFewerRows) {
  const std::vector<SampleTensor> weight = NibbleWeight(5, 64, 32);
  const auto bytes = [&](int64_t rows, bool dynamic) {
    const OpSample s = dynamic ? Case(OpId::kQuantizedLinear, {Bytes({rows, 64}), Floats({rows}), Integers({rows}, 9, DType::kI32), weight[0], weight[1], {}})
                               : Case(OpId::kQuantizedLinear, {Floats({rows, 64}), {}, {}, weight[0], weight[1], {}});
    const SampleTensor result = Floats({rows, 5});
    std::vector<TensorView> in, out = {result.view()};
    for (const SampleTensor& t : s.inputs) in.push_back(t.view());
    return FindScratch(s.op)({in, s.attrs, out, nullptr, {}});
  };
  for (bool dynamic : {false, true})
    for (int64_t rows : {0, 1, 2, 3, 4, 100}) EXPECT_LE(bytes(rows, dynamic), bytes(128, dynamic));
}

}  // namespace
}  // namespace dovetail
