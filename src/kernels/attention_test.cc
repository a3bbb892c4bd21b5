// Attention against the reference, as every kernel is (kernels_test.cc), and what only attention promises: unseen keys don't matter.
#include "kernels/kernel_testing.h"

namespace dovetail {
namespace {

enum class Mask { kNone, kBool, kFloat };

SampleTensor Positions(int64_t rows, int64_t first, DType type = DType::kI64) {
  SampleTensor t = Integers({rows}, 1, type);
  for (int64_t i = 0; i < rows; ++i) {
    if (type == DType::kI64) t.view().as<int64_t>()[i] = first + i;
    else t.view().as<int32_t>()[i] = static_cast<int32_t>(first + i);
  }
  return t;
}

// Every third key is masked, and every key of the first row.
SampleTensor MaskOf(Mask kind, const std::vector<int64_t>& sizes) {
  if (kind == Mask::kNone) return {};
  SampleTensor t = kind == Mask::kBool ? Integers(sizes, 2, DType::kU8) : Floats(sizes);
  if (kind == Mask::kBool) t.dtype = DType::kBool;
  const int64_t keys = sizes.back();
  for (int64_t i = 0; i < t.view().numel(); ++i) {
    if (i >= keys && i % 3) continue;
    if (kind == Mask::kBool) t.view().as<uint8_t>()[i] = 0;
    else t.view().as<float>()[i] = -kInf;
  }
  return t;
}

OpSample Attention(std::array<int64_t, 3> heads, int64_t rows, int64_t keys, int64_t width, int64_t value_width, SampleTensor mask = {},
                   SampleTensor positions = {}, std::vector<std::pair<std::string, Attr>> attrs = {}) {
  const auto [batch, query_heads, kv_heads] = heads;
  return Case(OpId::kAttention,
              {Floats({batch, query_heads, rows, width}), Floats({batch, kv_heads, keys, width}), Floats({batch, kv_heads, keys, value_width}),
               std::move(mask), std::move(positions)},
              std::move(attrs));
}

// The same over keys and values as rows of int8.
OpSample Int8(const OpSample& s) {
  std::vector<SampleTensor> key, value;
  const KernelFn quantize = GetOp(OpId::kQuantizeRows).reference;
  EXPECT_TRUE(RunKernel(Case(OpId::kQuantizeRows, {s.inputs[1]}), quantize, nullptr, nullptr, &key).ok());
  EXPECT_TRUE(RunKernel(Case(OpId::kQuantizeRows, {s.inputs[2]}), quantize, nullptr, nullptr, &value).ok());
  OpSample sample = Case(OpId::kQuantizedAttention, {s.inputs[0], key[0], value[0], key[1], value[1], s.inputs[3], s.inputs[4]});
  sample.attrs = s.attrs;
  return sample;
}

TEST(AttentionTest, RowsOfInt8) {
  EXPECT_NE(FindKernel(OpId::kQuantizedAttention), GetOp(OpId::kQuantizedAttention).reference);
  for (std::array<int64_t, 3> heads : {std::array<int64_t, 3>{1, 1, 1}, {2, 4, 2}, {1, 6, 2}})
    for (int64_t rows : {1, 33})
      for (int64_t keys : {1, 65, 300})
        for (int64_t width : {Pick({1, 3, 7, 16, 64}), Pick({65, 128, 130})}) {
          Check(Int8(Attention(heads, rows, keys, width, Pick({1, 8, 33, 64, 100}))));
          if (keys < rows) continue;
          const bool causal = Pick({0, 1}) == 1;
          Check(Int8(Attention(heads, rows, keys, width, width, {}, Positions(rows, keys - rows), {{"is_causal", causal}, {"scale", 0.7}})));
        }
  for (Mask kind : {Mask::kBool, Mask::kFloat})
    for (int64_t rows : {1, 35})
      for (int64_t keys : {9, 520})
        for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2, 6, rows, keys}, {2, 1, rows, keys}, {rows, keys}, {keys}, {rows, 1}})
          Check(Int8(Attention({2, 6, 3}, rows, keys, 72, 12, MaskOf(kind, sizes))));
  for (int64_t first : {0, 255, 256, 1023}) Check(Int8(Attention({1, 9, 3}, 1, 1024, 64, 64, {}, Positions(1, first))));
  Check(Int8(Attention({1, 64, 32}, 1, 600, 16, 16, {}, Positions(1, 550))));
  Check(Int8(Attention({1, 2, 2}, 3, 0, 4, 4)));
  Check(Int8(Attention({1, 2, 1}, 0, 5, 4, 4)));
  Check(Int8(Case(OpId::kAttention, {Floats({4, 3, 8}), Floats({2, 5, 8}), Floats({2, 5, 8}), SampleTensor(), SampleTensor()})));
}

// A scale that is no number, of a key that nobody sees or of one that a row sees.
TEST(AttentionTest, ScalesThatAreNoNumbers) {
  for (int64_t rows : {1, 40})
    for (float bad : {kNan, kInf}) {
      OpSample s = Int8(Attention({1, 4, 2}, rows, 400, 16, 16, {}, Positions(rows, 310)));
      for (size_t i : {3, 4})
        for (int64_t head = 0; head < 2; ++head) std::fill_n(s.inputs[i].view().as<float>() + head * 400 + 310 + rows, 400 - 310 - rows, bad);
      Check(s);
      s.inputs[4].view().as<float>()[310 + rows - 1] = bad;
      Check(s);
    }
}

TEST(AttentionTest, QuantizingRows) {
  for (int64_t width : {1, 7, 8, 64, 257, 4096})
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{width}, {5, width}, {2, 3, width}, {70, width}, {0, width}}) {
      const OpSample s = Case(OpId::kQuantizeRows, {Floats(sizes, 3)});
      Check(s);
      std::vector<SampleTensor> pair;
      ASSERT_TRUE(RunKernel(s, FindKernel(s.op), nullptr, nullptr, &pair).ok());
      Check(Case(OpId::kDequantizeRows, pair));
    }
  SampleTensor odd = Floats({6, 3});
  const float values[] = {0, -0.0f, 0, kNan, 1, -2, kInf, 1, 2, kNan, kInf, 1, 1e-40f, 0, 0, 3e38f, -1e38f, 5};
  std::copy(std::begin(values), std::end(values), odd.view().as<float>());
  Check(Case(OpId::kQuantizeRows, {odd}));
}

TEST(AttentionTest, Shapes) {
  for (std::array<int64_t, 3> heads : {std::array<int64_t, 3>{1, 1, 1}, {2, 4, 2}, {1, 6, 2}, {3, 5, 5}, {1, 7, 1}})
    for (int64_t rows : {1, 2, 5, 33})
      for (int64_t keys : {1, 3, 64, 65, 300}) {
        for (int64_t width : {Pick({1, 3, 7}), Pick({16, 20})}) {
          Check(Attention(heads, rows, keys, width, Pick({1, 5, 8, 16, 33})));
          const int64_t first = keys >= rows ? Pick({0, keys - rows, (keys - rows) / 2}) : -1;
          const SampleTensor positions = first < 0 ? SampleTensor() : Positions(rows, first, Pick({0, 1}) ? DType::kI32 : DType::kI64);
          Check(Attention(heads, rows, keys, width, width, {}, positions, {{"is_causal", Pick({0, 1}) == 1}, {"scale", 0.7}}));
        }
      }
}

TEST(AttentionTest, Masks) {
  for (Mask kind : {Mask::kBool, Mask::kFloat})
    for (int64_t rows : {1, 4, 35})
      for (int64_t keys : {1, 9, 70, 520}) {
        for (const std::vector<int64_t>& sizes :
             {std::vector<int64_t>{2, 6, rows, keys}, {2, 1, rows, keys}, {1, 6, 1, keys}, {rows, keys}, {keys}, {rows, 1}, {1, 1, 1, 1}})
          Check(Attention({2, 6, 3}, rows, keys, 8, 12, MaskOf(kind, sizes)));
        if (keys >= rows) Check(Attention({2, 6, 3}, rows, keys, 8, 12, MaskOf(kind, {rows, keys}), Positions(rows, keys - rows), {{"is_causal", true}}));
      }
}

SampleTensor SwapRowsAndHeads(const SampleTensor& t) {
  std::vector<SampleTensor> swapped;
  EXPECT_TRUE(RunKernel(Case(OpId::kPermute, {t}, {{"dims", Attr::Ints({0, 2, 1, 3})}}), GetOp(OpId::kPermute).reference, nullptr, nullptr, &swapped).ok());
  return swapped[0];
}

// Rows before heads: what the same attention gives over permuted tensors, bit by bit in the reference.
void CheckByRow(const OpSample& s, bool query, bool keys) {
  OpSample by_row = s;
  const bool int8 = s.op == OpId::kQuantizedAttention;
  by_row.attrs[2] = query, by_row.attrs[3] = keys;
  by_row.where += StrCat(" by row ", query, keys);
  for (size_t i = 0; i < (int8 ? 5u : 3u); ++i)
    if (i == 0 ? query : keys) by_row.inputs[i] = SwapRowsAndHeads(s.inputs[i]);
  SCOPED_TRACE(by_row.where);
  std::vector<SampleTensor> want, got;
  ASSERT_TRUE(RunKernel(s, GetOp(s.op).reference, nullptr, nullptr, &want).ok());
  ASSERT_TRUE(RunKernel(by_row, GetOp(s.op).reference, nullptr, nullptr, &got).ok());
  EXPECT_EQ((query ? SwapRowsAndHeads(got[0]) : got[0]).bytes, want[0].bytes);
  Check(by_row);
}

TEST(AttentionTest, RowsBeforeHeads) {
  for (std::array<int64_t, 3> heads : {std::array<int64_t, 3>{2, 2, 2}, {2, 6, 2}, {1, 5, 5}})
    for (int64_t rows : {1, 3, 33})
      for (int64_t keys : {1, 70, 280})
        for (const auto& [query, keys_too] : {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
          const int64_t width = Pick({3, 16, 32, 64}), value_width = Pick({width, 5, 32, 70});
          const OpSample s = Attention(heads, rows, keys, width, value_width, MaskOf(Mask::kBool, {heads[0], 1, 1, keys}));
          CheckByRow(s, query, keys_too);
          CheckByRow(Int8(s), query, keys_too);
          if (keys >= rows) CheckByRow(Attention(heads, rows, keys, width, width, {}, Positions(rows, keys - rows)), query, keys_too);
        }
  // What is no number is gathered with care.
  OpSample s = Attention({2, 4, 2}, 20, 40, 16, 16, MaskOf(Mask::kBool, {2, 4, 20, 40}));
  s.inputs[2].view().as<float>()[35] = kInf;
  s.inputs[1].view().as<float>()[700] = kNan;
  CheckByRow(s, true, true);
}

TEST(AttentionTest, LanguageModelShapes) {
  for (int64_t first : {0, 1, 255, 256, 257, 700, 1023}) Check(Attention({1, 8, 2}, 1, 1024, 64, 64, {}, Positions(1, first)));
  Check(Attention({1, 32, 8}, 1, 512, 64, 64, {}, Positions(1, 400)));
  Check(Attention({1, 64, 32}, 1, 600, 16, 16, {}, Positions(1, 550)));  // many blocks: keys are not split
  Check(Attention({1, 4, 2}, 100, 300, 64, 64, {}, Positions(100, 180)));
  Check(Attention({2, 4, 4}, 70, 130, 128, 128, {}, Positions(70, 60)));
  Check(Attention({1, 3, 1}, 150, 150, 80, 80, {}, {}, {{"is_causal", true}}));
}

// Widths around those of vectors and of the pieces they are handled in, rows around those of tiles and blocks, and keys around those of blocks and
// splits; in float and in int8.
TEST(AttentionTest, WidthsRowsAndKeys) {
  for (int64_t width : {1, 3, 15, 16, 17, 31, 33, 48, 80, 96, 127, 128, 129, 256, 300})
    for (int64_t rows : {Pick({1}), Pick({2}), Pick({3}), Pick({7}), Pick({8}), Pick({9, 11, 62}), Pick({63, 64, 65}), Pick({66, 127, 130})}) {
      const int64_t keys = rows + Pick({0, 1, 13, 62, 63, 64, 65, 131, 200, 512, 513}), value_width = Pick({width, 1, 5, 16, 63, 64, 130});
      const OpSample s = Attention({1, 2, 1}, rows, keys, width, value_width, {}, Positions(rows, Pick({0, keys - rows})));
      Check(s);
      Check(Int8(s));
    }
}

TEST(AttentionTest, EveryNumberOfRows) {
  for (int64_t rows = 1; rows <= 130; ++rows) {
    const OpSample s = Attention({1, 1, 1}, rows, rows + Pick({0, 3, 70}), 18, 20, {}, {}, {{"is_causal", true}});
    Check(rows % 2 ? s : Int8(s));
  }
}

// Rows that the mask leaves nothing, next to others, and masks that vary by key only or lie with other strides.
TEST(AttentionTest, MasksOfManyRows) {
  for (Mask kind : {Mask::kBool, Mask::kFloat})
    for (int64_t rows : {5, 8, 70})
      for (int64_t keys : {48, 64, 77, 300})
        for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1, 4, rows, keys}, {rows, keys}, {1, keys}, {rows, 1}}) {
          SampleTensor mask = MaskOf(kind, sizes);
          if (sizes.back() == keys && sizes[sizes.size() - 2] == rows)
            for (int64_t k = 0; k < keys; ++k) {  // rows 3 and 4 see nothing either
              if (kind == Mask::kBool) std::fill_n(mask.view().as<uint8_t>() + 3 * keys, 2 * keys, 0);
              else std::fill_n(mask.view().as<float>() + 3 * keys, 2 * keys, -kInf);
            }
          const OpSample s = Attention({1, 4, 2}, rows, keys, 24, 40, mask);
          Check(s);
          Check(Int8(s));
        }
}

// Quotients that are ties, or as near to one as a float can be, and rows of every magnitude.
TEST(AttentionTest, QuantizingTies) {
  std::vector<float> x;
  for (float scale : {1.0f, 0.75f, 3.0f * 0x1p-100f, 1.2345678e30f, 0x1.5p-120f, 0.0123f}) {
    const float most = 127 * scale;
    for (int64_t step = 0; step < 127; ++step) {
      const float tie = (static_cast<float>(step) + 0.5f) * scale;
      x.insert(x.end(), {most, tie, -tie, std::nextafter(tie, kInf), std::nextafter(tie, 0.0f), -std::nextafter(tie, kInf), tie * 0.99f, 0});
    }
  }
  SampleTensor ties = Floats({static_cast<int64_t>(x.size()) / 8, 8});
  std::copy(x.begin(), x.end(), ties.view().as<float>());
  Check(Case(OpId::kQuantizeRows, {ties}));
  for (float spread : {1e-38f, 1e-20f, 1e20f, 1e37f}) Check(Case(OpId::kQuantizeRows, {Floats({300, 33}, spread)}));
}

TEST(AttentionTest, OddOperands) {
  Check(Attention({1, 2, 2}, 3, 0, 4, 4));
  Check(Attention({1, 2, 1}, 0, 5, 4, 4));
  Check(Attention({0, 2, 1}, 2, 5, 4, 4));
  Check(Attention({1, 2, 1}, 2, 5, 4, 0));
  Check(Attention({1, 0, 0}, 2, 5, 4, 4));
  Check(Attention({1, 2, 1}, 2, 5, 0, 4, {}, {}, {{"scale", 1.0}}));
  Check(Case(OpId::kAttention, {Floats({4, 3, 8}), Floats({2, 5, 8}), Floats({2, 5, 8}), SampleTensor(), SampleTensor()}));
  OpSample large = Attention({1, 2, 1}, 4, 90, 8, 8);
  for (size_t i : {0, 1}) large.inputs[i] = Floats(large.inputs[i].sizes, 15);  // scores of hundreds: e^score is no float
  Check(large);
  SampleTensor lowest = Floats({4, 90});
  std::fill_n(lowest.view().as<float>(), 360, std::numeric_limits<float>::lowest());
  Check(Attention({1, 2, 1}, 4, 90, 8, 8, lowest));
}

TEST(AttentionTest, ANegativePositionIsRefusedAndOnePastTheKeysSeesThemAll) {
  std::vector<SampleTensor> results, last;
  const OpSample negative = Attention({1, 2, 1}, 1, 5, 4, 4, {}, Positions(1, -1));
  EXPECT_EQ(RunKernel(negative, FindKernel(negative.op), FindScratch(negative.op), nullptr, &results).code(), Code::kOutOfRange);
  for (int64_t first : {5, 1000}) Check(Attention({1, 2, 1}, 1, 5, 4, 4, {}, Positions(1, first)));
}

// What lies past the last visible key, or under the mask, has no influence, be it NaN or infinite.
TEST(AttentionTest, UnseenKeysDoNotMatter) {
  for (int64_t rows : {1, 3, 40}) {
    for (float bad : {kNan, kInf}) {
      OpSample s = Attention({1, 4, 2}, rows, 400, 16, 16, {}, Positions(rows, 310));
      for (size_t i : {1, 2})
        for (int64_t head = 0; head < 2; ++head)
          for (int64_t key = 310 + rows; key < 400; ++key) std::fill_n(s.inputs[i].view().as<float>() + (head * 400 + key) * 16, 16, bad);
      Check(s);
      // One row sees a bad value, the others don't.
      s.inputs[2].view().as<float>()[(310 + rows - 1) * 16] = bad;
      Check(s);

      OpSample masked = Attention({1, 4, 2}, rows, 100, 16, 16, Integers({rows, 100}, 2, DType::kU8));
      masked.inputs[3].dtype = DType::kBool;
      for (int64_t row = 0; row < rows; ++row) masked.inputs[3].view().as<uint8_t>()[row * 100 + 17] = 0;
      std::fill_n(masked.inputs[2].view().as<float>() + 17 * 16, 16, bad);
      Check(masked);

      // So it is under -inf in a mask of floats, and the keys at a row's end that a mask leaves out are as if not there.
      OpSample causal = Attention({1, 4, 2}, rows, 400, 16, 16, Floats({rows, 400}));
      for (int64_t row = 0; row < rows; ++row)
        std::fill_n(causal.inputs[3].view().as<float>() + row * 400 + 301 + row, 99 - row, -kInf);
      for (size_t i : {1, 2})
        for (int64_t key : {301 + rows - 1, int64_t{399}}) std::fill_n(causal.inputs[i].view().as<float>() + key * 16, 16, bad);
      Check(causal);
    }
  }
}

// Memory for a method is sized once, for the upper bounds of its shapes.
TEST(AttentionTest, ScratchOfTheUpperBoundServesSmallerShapes) {
  const auto bytes = [](int64_t batch, int64_t rows, int64_t keys) {
    const OpSample s = Attention({batch, 8, 2}, rows, keys, 16, 16);
    std::vector<TensorView> in, out = {s.inputs[0].view()};
    for (const SampleTensor& t : s.inputs) in.push_back(t.view());
    return FindScratch(OpId::kAttention)({in, s.attrs, out, nullptr, {}});
  };
  EXPECT_EQ(bytes(1, 512, 256), 0u);
  for (int64_t batch : {1, 2})
    for (int64_t rows : {1, 3, 100, 512})
      for (int64_t keys : {1, 256, 257, 1000, 2048}) EXPECT_LE(bytes(batch, rows, keys), bytes(2, 512, 2048));
}

}  // namespace
}  // namespace dovetail
