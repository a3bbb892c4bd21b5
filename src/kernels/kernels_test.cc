// Every kernel against the reference: on the recorded samples, and on seeded random cases of odd shapes; with 1, 2 and 3 threads, whose
// results must be equal bit by bit.
#include "kernels/kernels.h"

#include <gtest/gtest.h>
#include <pthreadpool.h>

#include <bit>
#include <limits>
#include <numeric>
#include <random>

#include "ops/op_samples.h"

namespace dovetail {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct pthreadpool* Pool(size_t threads) {
  static struct pthreadpool* pools[] = {nullptr, nullptr, pthreadpool_create(2), pthreadpool_create(3)};
  return pools[threads];
}

std::mt19937& Random() {
  static std::mt19937 random(7);
  return random;
}
int64_t Pick(std::initializer_list<int64_t> choices) { return choices.begin()[Random()() % choices.size()]; }

SampleTensor Floats(std::vector<int64_t> sizes, float spread = 1) {
  SampleTensor t{DType::kF32, std::move(sizes), {}};
  t.bytes.resize(t.view().nbytes());
  std::normal_distribution<float> normal(0, spread);
  for (int64_t i = 0; i < t.view().numel(); ++i) t.view().as<float>()[i] = normal(Random());
  return t;
}
SampleTensor Integers(std::vector<int64_t> sizes, int64_t below, DType type = DType::kI64) {
  SampleTensor t{type, std::move(sizes), {}};
  t.bytes.resize(t.view().nbytes());
  for (int64_t i = 0; i < t.view().numel(); ++i) {
    const int64_t value = static_cast<int64_t>(Random()()) % below;
    if (type == DType::kI64) t.view().as<int64_t>()[i] = value;
    else if (type == DType::kI32) t.view().as<int32_t>()[i] = static_cast<int32_t>(value);
    else t.view().as<uint8_t>()[i] = static_cast<uint8_t>(value);
  }
  return t;
}

// A sample without results, with arguments by name.
OpSample Case(OpId op, std::vector<SampleTensor> inputs, std::vector<std::pair<std::string, Attr>> attrs = {}) {
  OpSample s;
  s.op = op;
  s.where = std::string(GetOp(op).name);
  s.inputs = std::move(inputs);
  for (const SampleTensor& t : s.inputs) s.where += " " + (t.dtype == DType::kNone ? std::string("none") : t.view().type().ToString());
  for (const SchemaArg& arg : GetSchema(op).args)
    if (!IsTensorKind(arg.kind)) s.attrs.push_back(arg.default_value);
  for (auto& [name, value] : attrs) {
    s.where += " " + name + "=" + value.ToString();
    s.attrs[static_cast<size_t>(GetSchema(op).Find(name)->index)] = std::move(value);
  }
  return s;
}

// Runs a kernel on copies of the operands; results and scratch memory begin as NaN. The results are empty when it fails.
Status Run(const OpSample& s, KernelFn kernel, ScratchFn scratch, struct pthreadpool* pool, std::vector<SampleTensor>* results) {
  std::vector<SampleTensor> inputs = s.inputs;
  std::vector<TensorType> operands, types(GetSchema(s.op).results.size());
  std::vector<TensorView> in, out;
  for (const SampleTensor& t : inputs) {
    in.push_back(t.view());
    operands.push_back(t.dtype == DType::kNone ? TensorType() : t.view().type());
  }
  results->clear();
  DT_RETURN_IF_ERROR(GetOp(s.op).infer({operands, s.attrs, types, in}));
  for (const TensorType& type : types) {
    SampleTensor t{type.dtype, {}, {}};
    for (Dim d : type.shape) t.sizes.push_back(d.value());
    t.bytes.assign(t.view().nbytes(), std::byte{0xff});
    results->push_back(std::move(t));
  }
  const bool in_place = GetSchema(s.op).args[0].written;
  for (const SampleTensor& t : *results) out.push_back(t.view());
  if (in_place) out[0] = in[0];
  KernelContext c{in, s.attrs, out, pool, {}};
  const size_t bytes = scratch ? scratch(c) : 0;
  std::vector<float> memory(bytes / sizeof(float) + 16, kNan);
  const size_t skipped = (64 - std::bit_cast<uintptr_t>(memory.data()) % 64) % 64 / sizeof(float);
  c.scratch = {reinterpret_cast<std::byte*>(memory.data() + skipped), bytes};
  if (Status status = kernel(c); !status.ok()) {
    results->clear();
    return status;
  }
  if (in_place) (*results)[0].bytes = inputs[0].bytes;
  return OkStatus();
}

// Largest difference relative to the range of `want`; infinite where exactly one is no number.
double Difference(const TensorView& got, const TensorView& want) {
  const Reader<double> g(got), w(want);
  double range = 0, worst = 0;
  for (int64_t i = 0; i < want.numel(); ++i)
    if (std::isfinite(w[i])) range = std::max(range, std::abs(w[i]));
  for (int64_t i = 0; i < want.numel(); ++i) {
    if (g[i] == w[i] || (std::isnan(g[i]) && std::isnan(w[i]))) continue;
    const double d = std::abs(g[i] - w[i]) / range;
    worst = std::isfinite(d) ? std::max(worst, d) : HUGE_VAL;
  }
  return worst;
}

void Check(const OpSample& s) {
  SCOPED_TRACE(s.where);
  std::vector<SampleTensor> want, got, threaded;
  const Status expected = Run(s, GetOp(s.op).reference, nullptr, nullptr, &want);
  const Status status = Run(s, FindKernel(s.op), FindScratch(s.op), nullptr, &got);
  ASSERT_EQ(status.ToString(), expected.ToString());
  for (size_t i = 0; i < want.size(); ++i) {
    if (IsFloat(want[i].dtype) && !(GetOp(s.op).traits & kDataMovement)) EXPECT_LE(Difference(got[i].view(), want[i].view()), 1e-5);
    else EXPECT_EQ(got[i].bytes, want[i].bytes);
  }
  for (size_t threads : {2, 3}) {
    EXPECT_EQ(Run(s, FindKernel(s.op), FindScratch(s.op), Pool(threads), &threaded).ToString(), status.ToString());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(threaded[i].bytes, got[i].bytes) << threads << " threads differ from one";
  }
}

TEST(KernelsTest, EveryOperatorHasAKernelButStructuralOnes) {
  for (size_t i = 0; i < static_cast<size_t>(OpId::kCount); ++i) {
    const OpId id = static_cast<OpId>(i);
    EXPECT_TRUE(FindKernel(id) != nullptr) << GetOp(id).name;
  }
  EXPECT_NE(FindKernel(OpId::kAttention), GetOp(OpId::kAttention).reference);
  EXPECT_EQ(FindKernel(OpId::kWhere), GetOp(OpId::kWhere).reference);
  EXPECT_EQ(FindScratch(OpId::kWhere), nullptr);
}

TEST(KernelsTest, RecordedSamples) {
  ASSERT_FALSE(OpSamples().empty());
  size_t checked = 0;
  for (const OpSample& s : OpSamples()) {
    if (FindKernel(s.op) == GetOp(s.op).reference) continue;
    for (size_t threads = 1; threads <= 3; ++threads)
      EXPECT_EQ(RunOpSample(s, FindKernel(s.op), FindScratch(s.op), Pool(threads)), "") << s.where << " with " << threads << " threads";
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

TEST(KernelsTest, Rows) {
  for (int64_t width : {1, 2, 7, 8, 15, 64, 257, 4096}) {
    for (std::vector<int64_t> sizes : {std::vector<int64_t>{width}, {5, width}, {2, 3, width}, {2, 1, 11, width}, {0, width}}) {
      Check(Case(OpId::kRmsNorm, {Floats(sizes), Floats({width})}, {{"eps", 1e-5}}));
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
