// Inference on symbolic dims, and that it does not allocate on constant ones.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "ops/infer_util.h"
#include "ops/op_samples.h"

namespace {
std::atomic<size_t> allocations{0};
}  // namespace
// Not inlined: the compiler would see malloc paired with delete.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) std::abort();
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace dovetail {
namespace {

Dim D(std::string_view text) {
  Result<Dim> d = Dim::Parse(text);
  EXPECT_TRUE(d.ok()) << text;
  return d.ok() ? *d : Dim(0);
}
Shape S(std::initializer_list<std::string_view> dims) {
  Shape s;
  for (std::string_view d : dims) s.push_back(D(d));
  return s;
}
Attr Sizes(std::initializer_list<std::string_view> dims) {
  std::vector<Dim> v;
  for (std::string_view d : dims) v.push_back(d == "-1" ? Dim(-1) : D(d));
  return Attr(std::move(v));
}

// The text of the result's shape, or of the error.
std::string InferShape(std::string_view op, std::vector<Shape> operands, std::vector<Attr> attrs, DType dtype = DType::kF32) {
  std::vector<TensorType> types;
  for (const Shape& s : operands) types.emplace_back(dtype, s);
  std::vector<TensorType> results(1);
  const OpId id = FindOp(op);
  if (id == OpId::kCount) return "no such operator";
  const Status status = GetOp(id).infer(InferContext{types, attrs, results, {}});
  return status.ok() ? results[0].shape.ToString() : std::string(status.message());
}

TEST(SymbolicInferenceTest, Upsample) {
  const auto by = [](double h, double w) { return InferShape("upsample_nearest2d", {S({"1", "3", "s0", "s1"})}, {Attr(), Attr(std::vector<double>{h, w})}); };
  EXPECT_EQ(by(2, 1), "1,3,2*s0,s1");
  EXPECT_EQ(by(0.5, 1.5), "1,3,floordiv(s0,2),floordiv(3*s1,2)");
  EXPECT_NE(by(2, 1.7).find("a multiple of 1/1024"), std::string::npos) << by(2, 1.7);
  EXPECT_EQ(InferShape("upsample_bilinear2d", {S({"s0", "3", "8", "s1"})}, {Sizes({"s0", "2*s1"}), true, Attr()}), "s0,3,s0,2*s1");
}

std::string View(std::initializer_list<std::string_view> from, std::initializer_list<std::string_view> to) {
  return InferShape("view", {S(from)}, {Sizes(to)});
}
TEST(SymbolicInferenceTest, View) {
  EXPECT_EQ(View({"1", "s0", "64"}, {"1", "s0", "4", "16"}), "1,s0,4,16");
  EXPECT_EQ(View({"1", "s0", "64"}, {"-1", "64"}), "s0,64");
  EXPECT_EQ(View({"s0", "s1", "6"}, {"s1", "-1"}), "s1,6*s0");
  EXPECT_EQ(View({"s0+1", "8"}, {"2", "s0+1", "-1"}), "2,s0+1,4");
  EXPECT_EQ(View({"s0", "4"}, {"2*s0", "2"}), "2*s0,2");
  EXPECT_EQ(View({"s0"}, {"-1", "2"}), "floordiv(s0,2),2");
  EXPECT_EQ(View({"s0"}, {"floordiv(s0,2)", "2"}), "floordiv(s0,2),2");
  EXPECT_EQ(View({"s0", "4"}, {"s0", "5"}), "view: shape [s0,5] does not hold the elements of [s0,4]");
  EXPECT_EQ(View({"s0", "4"}, {"s1", "4"}), "view: shape [s1,4] does not hold the elements of [s0,4]");
}

std::string Slice(std::string_view dim, Attr start, Attr end, int64_t step = 1) {
  return InferShape("slice", {S({dim, "3"})}, {Attr(0), std::move(start), std::move(end), Attr(step)});
}
TEST(SymbolicInferenceTest, Slice) {
  EXPECT_EQ(Slice("s0", Attr(), Attr()), "s0,3");
  EXPECT_EQ(Slice("s0", Attr(0), Attr(INT64_MAX)), "s0,3");
  EXPECT_EQ(Slice("s0", Attr(2), Attr(INT64_MAX)), "s0-2,3");
  EXPECT_EQ(Slice("s0", Attr(-1), Attr(INT64_MAX)), "1,3");
  EXPECT_EQ(Slice("s0", Attr(), Attr(-1)), "s0-1,3");
  EXPECT_EQ(Slice("128", Attr(0), Attr(D("s0"))), "s0,3");
  EXPECT_EQ(Slice("128", Attr(D("s0")), Attr(D("s0+4"))), "4,3");
  EXPECT_EQ(Slice("s0", Attr(0), Attr(D("s0+5"))), "s0,3");
  EXPECT_EQ(Slice("s0", Attr(Dim(0) - D("s1")), Attr()), "s1,3");
  EXPECT_EQ(Slice("2*s0", Attr(), Attr(), 2), "s0,3");
  EXPECT_EQ(Slice("s0", Attr(), Attr(), 2), "floordiv(s0+1,2),3");
  EXPECT_EQ(Slice("s0", Attr(), Attr(), -1), "slice: step -1 is not a positive number");
}

TEST(SymbolicInferenceTest, MovementAndMaking) {
  EXPECT_EQ(InferShape("cat", {S({"s0", "3"}), S({"4", "3"}), S({"s0", "3"})}, {Attr(0)}), "2*s0+4,3");
  EXPECT_EQ(InferShape("cat", {S({"s0", "3"}), S({"s1", "3"})}, {Attr(1)}), "cat: [s1,3] and [s0,3] differ not only in dimension 1");
  EXPECT_EQ(InferShape("expand", {S({"1", "s0"})}, {Sizes({"s1", "-1"}), Attr(false)}), "s1,s0");
  EXPECT_EQ(InferShape("expand", {S({"s0"})}, {Sizes({"s1"}), Attr(false)}), "expand: dimension 0 of [s0] is not 1 and cannot become s1");
  EXPECT_EQ(InferShape("permute", {S({"s0", "2", "s1"})}, {Sizes({"2", "0", "1"})}), "s1,s0,2");
  EXPECT_EQ(InferShape("constant_pad_nd", {S({"2", "s0"})}, {Sizes({"1", "s1"}), Attr(0)}), "2,s0+s1+1");
  EXPECT_EQ(InferShape("reflection_pad1d", {S({"2", "s0"})}, {Sizes({"1", "2"})}), "2,s0+3");
  EXPECT_EQ(InferShape("full", {}, {Sizes({"s0", "2"}), Attr(1.0), Attr(DType::kF32)}), "s0,2");
  EXPECT_EQ(InferShape("arange", {}, {Attr(0), Attr(D("s0")), Attr(1), Attr(DType::kI64)}), "s0");
  EXPECT_EQ(InferShape("arange", {}, {Attr(D("s1")), Attr(D("s1+s0")), Attr(1), Attr(DType::kF32)}), "s0");
  EXPECT_EQ(InferShape("arange", {}, {Attr(0), Attr(D("s0")), Attr(2), Attr(DType::kI64)}), "floordiv(s0+1,2)");
  EXPECT_EQ(InferShape("arange", {}, {Attr(0), Attr(4.5), Attr(0.0), Attr(DType::kF32)}), "arange: no range from 0 to 4.5 with step 0.0");
}

TEST(SymbolicInferenceTest, Elementwise) {
  EXPECT_EQ(InferShape("add", {S({"s0", "1", "4"}), S({"3", "1"})}, {Attr(1)}), "s0,3,4");
  EXPECT_EQ(InferShape("mul", {S({"s0"}), S({"s1"})}, {}), "shapes [s0] and [s1] do not broadcast");
  EXPECT_EQ(InferShape("exp", {S({"s0", "4"})}, {}), "s0,4");
  EXPECT_EQ(InferShape("copy_", {S({"s0", "4"}), S({"4"})}, {Attr(false)}), "s0,4");
  EXPECT_EQ(InferShape("copy_", {S({"4"}), S({"s0", "4"})}, {Attr(false)}), "copy_: [s0,4] does not broadcast to [4]");
}

TEST(InferenceTest, QuantizationStaysWhereElementsOnlyMove) {
  TensorType self(DType::kI8, S({"2", "3"}));
  self.quant.kind = QuantParams::Kind::kPerTensor;
  self.quant.scale = 0.5f;
  std::vector<TensorType> results(1), operands = {self};
  std::vector<Attr> attrs = {Sizes({"6"})};
  ASSERT_TRUE(kOpView.infer(InferContext{operands, attrs, results, {}}).ok());
  EXPECT_EQ(results[0].quant, self.quant);
  ASSERT_TRUE(kOpNeg.infer(InferContext{operands, {}, results, {}}).ok());
  EXPECT_EQ(results[0].quant, QuantParams());
}

TEST(InferenceTest, DoesNotAllocateForConstantDims) {
  for (const OpSample& sample : OpSamples()) {
    if (!sample.error.empty()) continue;
    std::vector<TensorType> operands, results(GetSchema(sample.op).results.size());
    std::vector<TensorView> constants;
    for (const SampleTensor& t : sample.inputs) {
      constants.push_back(t.view());
      operands.push_back(constants.back().present() ? constants.back().type() : TensorType());
    }
    const InferContext ctx{operands, sample.attrs, results, constants};
    const size_t before = allocations;
    const bool ok = GetOp(sample.op).infer(ctx).ok();
    EXPECT_EQ(allocations - before, 0u) << GetOp(sample.op).name << " at " << sample.where;
    EXPECT_TRUE(ok) << sample.where;
  }
}

}  // namespace
}  // namespace dovetail
