// Every kernel against the reference: on the recorded samples, and on seeded random cases of odd shapes; with 1, 2 and 3 threads, whose
// results must be equal bit by bit.
#include "kernels/kernel_testing.h"

#include <algorithm>

namespace dovetail {
namespace {

TEST(KernelsTest, EveryOperatorHasAKernelButStructuralOnes) {
  for (size_t i = 0; i < static_cast<size_t>(OpId::kCount); ++i) {
    const OpId id = static_cast<OpId>(i);
    EXPECT_TRUE(FindKernel(id) != nullptr) << GetOp(id).name;
  }
  EXPECT_NE(FindKernel(OpId::kAttention), GetOp(OpId::kAttention).reference);
  EXPECT_EQ(FindKernel(OpId::kWhere), GetOp(OpId::kWhere).reference);
  EXPECT_EQ(FindScratch(OpId::kWhere), nullptr);
}

// The reference gives what is recorded (op_samples_test.cc), so that is not compared again.
TEST(KernelsTest, RecordedSamples) {
  size_t checked = 0;
  for (const OpSample& s : OpSamples()) {
    if (FindKernel(s.op) == GetOp(s.op).reference) continue;
    Check(s);
    ++checked;
  }
  EXPECT_GE(checked, 40u);
}

TEST(KernelsTest, Elementwise) {
  for (OpId op : {OpId::kAdd, OpId::kSub, OpId::kMul, OpId::kDiv}) {
    for (int64_t n : {0, 1, 7, 8, 33, 50001}) Check(Case(op, {Floats({n}), Floats({n})}));
    const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> broadcast = {
        {{3, 5, 7}, {7}},    {{3, 5, 7}, {}},         {{}, {3, 5, 7}},          {{2, 1, 9}, {1, 4, 9}}, {{2, 3, 4, 5}, {2, 1, 1, 5}},
        {{1, 1}, {4, 129}}, {{129, 1}, {1, 257}}, {{5, 1, 3, 1}, {2, 1, 6}}, {{}, {}},              {{1, 0}, {3, 1}},
        {{40, 1000}, {40, 1}}};
    for (const auto& [a, b] : broadcast) Check(Case(op, {Floats(a), Floats(b)}));
    Check(Case(op, {Floats({3, 5}), Integers({}, 9)}));
    if (op == OpId::kAdd || op == OpId::kSub) Check(Case(op, {Floats({4, 9}), Floats({9})}, {{"alpha", 2.5}}));
  }
}

TEST(KernelsTest, Reductions) {
  const auto dims = [](std::vector<int64_t> v) { return Attr(std::vector<Dim>(v.begin(), v.end())); };
  for (OpId op : {OpId::kSum, OpId::kMean}) {
    for (bool keep : {false, true}) {
      for (const std::vector<int64_t>& d : std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {-1}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, {}})
        for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{3, 5, 7}, {2, 33, 131}, {1, 128, 384}, {4, 1, 9}, {1, 1, 17}, {2, 1, 1}})
          Check(Case(op, {Floats(shape)}, {{"dim", dims(d)}, {"keepdim", Attr(keep)}}));
    }
    Check(Case(op, {Floats({3, 0, 4})}, {{"dim", dims({2})}}));
    Check(Case(op, {Floats({0, 5})}, {{"dim", dims({1})}}));
  }
  Check(Case(OpId::kSum, {Floats({3, 0, 4})}, {{"dim", dims({1})}}));
  Check(Case(OpId::kSum, {Integers({6, 40}, 9)}, {{"dim", dims({0})}}));
}

TEST(KernelsTest, Convolutions) {
  const auto ints = [](std::vector<int64_t> v) {
    std::vector<Dim> dims(v.begin(), v.end());
    return Attr(dims);
  };
  struct Sizes {
    std::vector<int64_t> input, weight, stride, padding, dilation;
    int64_t groups;
  };
  const Sizes cases[] = {
      {{1, 3, 9, 11}, {5, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},     {{2, 3, 17, 19}, {70, 3, 3, 5}, {2, 3}, {0, 4}, {1, 2}, 1},
      {{1, 70, 12, 13}, {66, 70, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}, {{1, 8, 7, 7}, {4, 8, 1, 1}, {2, 2}, {1, 0}, {1, 1}, 1},
      {{2, 6, 14, 15}, {6, 1, 3, 3}, {1, 2}, {1, 1}, {1, 1}, 6},    {{1, 4, 5, 6}, {8, 2, 2, 3}, {1, 1}, {3, 2}, {2, 3}, 2},
      {{1, 1, 3, 3}, {2, 1, 3, 3}, {1, 1}, {5, 5}, {1, 1}, 1},      {{0, 2, 5, 5}, {3, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},
      {{2, 5, 300}, {7, 5, 8}, {3}, {2}, {2}, 1},                   {{1, 2, 40}, {130, 2, 5}, {1}, {2}, {1}, 1},
  };
  for (const Sizes& s : cases)
    for (const bool bias : {true, false}) {
      const SampleTensor none;
      Check(Case(OpId::kConvolution, {Floats(s.input), Floats(s.weight), bias ? Floats({s.weight[0]}) : none},
                 {{"stride", ints(s.stride)}, {"padding", ints(s.padding)}, {"dilation", ints(s.dilation)}, {"transposed", false},
                  {"output_padding", ints(std::vector<int64_t>(s.stride.size(), 0))}, {"groups", s.groups}}));
    }
  // What has no fast path.
  Check(Case(OpId::kConvolution, {Floats({1, 3, 4, 5}), Floats({3, 2, 3, 3}), SampleTensor()},
             {{"stride", ints({2, 2})}, {"padding", ints({1, 1})}, {"dilation", ints({1, 1})}, {"transposed", true}, {"output_padding", ints({1, 1})},
              {"groups", int64_t{1}}}));
}

TEST(KernelsTest, Rows) {
  for (int64_t width : {1, 2, 7, 8, 15, 64, 257, 4096}) {
    for (std::vector<int64_t> sizes : {std::vector<int64_t>{width}, {5, width}, {2, 3, width}, {2, 1, 11, width}, {0, width}}) {
      Check(Case(OpId::kRmsNorm, {Floats(sizes), Floats({width})}, {{"eps", 1e-5}}));
      Check(Case(OpId::kLayerNorm, {Floats(sizes), Floats({width}), Floats({width})}, {{"eps", 1e-5}}));
      Check(Case(OpId::kSoftmax, {Floats(sizes, 10)}, {{"dim", -1}}));
      Check(Case(OpId::kSoftmax, {Floats(sizes, 10)}, {{"dim", 0}}));
      Check(Case(OpId::kSiluMul, {Floats(sizes, 20), Floats(sizes)}));
    }
  }
  Check(Case(OpId::kSiluMul, {Floats({700, 64}, 60), Floats({700, 64})}));
  Check(Case(OpId::kSoftmax, {Floats({700, 64})}, {{"dim", 1}}));
  SampleTensor masked = Floats({4, 21});
  for (int64_t i = 0; i < 84; ++i)
    if (i < 21 || i % 2) masked.view().as<float>()[i] = -kInf;
  Check(Case(OpId::kSoftmax, {masked}, {{"dim", -1}}));
  SampleTensor extreme = Floats({17});
  const float values[] = {0, -0.0f, 88.7f, 89, 104, -88, -104, 1e30f, -1e30f, kInf, kNan};
  std::copy(std::begin(values), std::end(values), extreme.view().as<float>());
  Check(Case(OpId::kSiluMul, {extreme, Floats({17})}));
}

TEST(KernelsTest, Rope) {
  for (int64_t width : {2, 6, 16, 64, 130}) {
    Check(Case(OpId::kRope, {Floats({2, 3, 5, width}), Floats({5, width}), Floats({1, 1, 5, width})}));
    Check(Case(OpId::kRope, {Floats({2, 3, 5, width}), Floats({2, 1, 5, width}), Floats({width})}));
    Check(Case(OpId::kRope, {Floats({7, width}), Floats({7, 1}), Floats({7, width})}));
    Check(Case(OpId::kRope, {Floats({width}), Floats({width}), Floats({width})}));
    Check(Case(OpId::kRope, {Floats({1, 8, 300, width}), Floats({300, width}), Floats({300, width})}));
  }
}

TEST(KernelsTest, MatrixProducts) {
  for (int64_t rows : {1, 2, 3, 5, 33, 130})
    for (int64_t columns : {1, 2, 7, 31, 150})
      for (int64_t inner : {0, 1, 7, 8, 65, 600}) {
        Check(Case(OpId::kLinear, {Floats({rows, inner}), Floats({columns, inner}), Floats({columns})}));
        Check(Case(OpId::kMatmul, {Floats({rows, inner}), Floats({inner, columns})}));
        Check(Case(OpId::kBmm, {Floats({3, rows, inner}), Floats({3, inner, columns})}));
      }
  Check(Case(OpId::kLinear, {Floats({2, 3, 9}), Floats({5, 9}), SampleTensor()}));
  Check(Case(OpId::kLinear, {Floats({2, 3, 9}), Floats({5, 9}), Floats({1})}));
  Check(Case(OpId::kLinear, {Floats({4, 9}), Floats({9}), SampleTensor()}));
  Check(Case(OpId::kLinear, {Floats({0, 9}), Floats({5, 9}), SampleTensor()}));
  Check(Case(OpId::kLinear, {Integers({4, 9}, 50), Integers({5, 9}, 50), SampleTensor()}));
  Check(Case(OpId::kMatmul, {Floats({9}), Floats({9})}));
  Check(Case(OpId::kMatmul, {Floats({9}), Floats({2, 9, 5})}));
  Check(Case(OpId::kMatmul, {Floats({2, 4, 9}), Floats({9})}));
  Check(Case(OpId::kMatmul, {Floats({2, 1, 4, 9}), Floats({3, 9, 5})}));
}

TEST(KernelsTest, Movement) {
  for (std::vector<int64_t> sizes : {std::vector<int64_t>{1, 1}, {3, 5}, {70, 33}, {300, 257}, {0, 4}}) {
    Check(Case(OpId::kPermute, {Floats(sizes)}, {{"dims", Attr::Ints({1, 0})}}));
    Check(Case(OpId::kClone, {Floats(sizes)}));
    Check(Case(OpId::kCopy, {Floats(sizes), Floats(sizes)}));
    Check(Case(OpId::kCopy, {Floats(sizes), Floats({sizes[1]})}));
    Check(Case(OpId::kCopy, {Floats(sizes), Integers(sizes, 9)}));
  }
  std::vector<int64_t> order = {0, 1, 2, 3};
  do {
    const Attr dims = Attr::Ints({order[0], order[1], order[2] - 4, order[3]});
    for (DType type : {DType::kU8, DType::kI32, DType::kI64}) Check(Case(OpId::kPermute, {Integers({2, 19, 3, 40}, 100, type)}, {{"dims", dims}}));
    Check(Case(OpId::kPermute, {Floats({1, 19, 1, 40})}, {{"dims", dims}}));
  } while (std::next_permutation(order.begin(), order.end()));
  Check(Case(OpId::kPermute, {Floats({})}, {{"dims", Attr::Ints({})}}));
  Check(Case(OpId::kClone, {Floats({300, 1000})}));

  Check(Case(OpId::kSliceScatter, {Floats({3, 9, 4}), Floats({3, 2, 4})}, {{"dim", 1}, {"start", 3}, {"end", 5}}));
  Check(Case(OpId::kSliceScatter, {Floats({3, 9, 4}), Floats({3, 3, 4})}, {{"dim", -2}, {"start", 1}, {"end", 9}, {"step", 3}}));
  Check(Case(OpId::kSliceScatter, {Floats({3, 9}), Floats({0, 9})}, {{"dim", 0}, {"start", 2}, {"end", 2}}));
  for (DType type : {DType::kBool, DType::kU8, DType::kI32, DType::kI64, DType::kF16, DType::kBF16, DType::kF64, DType::kF32}) {
    Check(Case(OpId::kToDtype, {Floats({3, 11}, 30)}, {{"out_dtype", type}}));
    Check(Case(OpId::kToDtype, {Integers({3, 11}, 100, DType::kI32)}, {{"out_dtype", type}}));
    if (type == DType::kI32 || type == DType::kI64 || type == DType::kU8)
      Check(Case(OpId::kToDtype, {Integers({20000}, 100, type)}, {{"out_dtype", DType::kF32}}));
  }
}

TEST(KernelsTest, Indexing) {
  for (DType type : {DType::kI32, DType::kI64}) {
    Check(Case(OpId::kEmbedding, {Floats({50, 37}), Integers({2, 9}, 50, type)}));
    Check(Case(OpId::kEmbedding, {Floats({50, 1000}), Integers({700}, 50, type)}));
    Check(Case(OpId::kEmbedding, {Floats({50, 3}), Integers({}, 50, type)}));
    Check(Case(OpId::kEmbedding, {Floats({5, 3}), Integers({40}, 50, type)}));  // out of range
    for (size_t dim = 0; dim < 3; ++dim) {
      const std::vector<int64_t> self = {6, 7, 9};
      std::vector<int64_t> values = self;
      values[dim] = 4;
      std::vector<SampleTensor> gather(2 + dim), put(3 + dim);
      gather.front() = put.front() = Floats(self);
      gather.back() = put[1 + dim] = Integers({4}, 6, type);
      put.back() = Floats(values);
      Check(Case(OpId::kIndex, gather));
      Check(Case(OpId::kIndexPut, put));
      Check(Case(OpId::kIndexPutInplace, put));
      Check(Case(OpId::kIndexPutInplace, put, {{"accumulate", true}}));
      put.back() = Floats({1});
      Check(Case(OpId::kIndexPutInplace, put));
      gather.back() = put[1 + dim] = Integers({3, 4}, 6, type);
      Check(Case(OpId::kIndex, gather));
      gather.back().view().as<int32_t>()[0] = 100;  // out of range
      Check(Case(OpId::kIndex, gather));
    }
    Check(Case(OpId::kIndex, {Floats({6, 7, 9}), Integers({4}, 6, type), Integers({4}, 7, type)}));
  }
  std::vector<SampleTensor> cache = {Floats({2, 8, 64, 32}), SampleTensor(), SampleTensor(), Integers({50}, 64), Floats({2, 8, 50, 32})};
  Check(Case(OpId::kIndexPutInplace, cache));  // indices come twice: the last one stays
}

}  // namespace
}  // namespace dovetail
