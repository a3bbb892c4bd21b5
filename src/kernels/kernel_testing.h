// For tests of kernels: random operands, running a kernel on them, and comparing it with the reference.
#pragma once

#include <gtest/gtest.h>
#include <pthreadpool.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>

#include "kernels/kernels.h"
#include "kernels/vector_kernels.h"
#include "ops/op_samples.h"

namespace dovetail {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline struct pthreadpool* Pool(size_t threads) {
  static struct pthreadpool* pools[] = {nullptr, nullptr, pthreadpool_create(2), pthreadpool_create(3)};
  return pools[threads];
}

inline std::mt19937& Random() {
  static std::mt19937 random(7);
  return random;
}
inline int64_t Pick(std::initializer_list<int64_t> choices) { return choices.begin()[Random()() % choices.size()]; }

inline SampleTensor Floats(std::vector<int64_t> sizes, float spread = 1) {
  SampleTensor t{DType::kF32, std::move(sizes), {}};
  t.bytes.resize(t.view().nbytes());
  std::normal_distribution<float> normal(0, spread);
  for (int64_t i = 0; i < t.view().numel(); ++i) t.view().as<float>()[i] = normal(Random());
  return t;
}
inline SampleTensor Integers(std::vector<int64_t> sizes, int64_t below, DType type = DType::kI64) {
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
inline OpSample Case(OpId op, std::vector<SampleTensor> inputs, std::vector<std::pair<std::string, Attr>> attrs = {}) {
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
inline Status RunKernel(const OpSample& s, KernelFn kernel, ScratchFn scratch, struct pthreadpool* pool, std::vector<SampleTensor>* results) {
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
  constexpr size_t kGuard = 64;
  std::vector<float> memory(bytes / sizeof(float) + 16 + kGuard, kNan);
  const size_t skipped = (64 - std::bit_cast<uintptr_t>(memory.data()) % 64) % 64 / sizeof(float);
  c.scratch = {reinterpret_cast<std::byte*>(memory.data() + skipped), bytes};
  if (Status status = kernel(c); !status.ok()) {
    results->clear();
    return status;
  }
  const float* end = memory.data() + skipped + bytes / sizeof(float);
  EXPECT_TRUE(std::all_of(end, end + kGuard, [](float x) { return std::isnan(x); })) << "the kernel wrote past its scratch memory";
  if (in_place) (*results)[0].bytes = inputs[0].bytes;
  return OkStatus();
}

// Largest difference relative to the range of `want`, or to `least` where that is more; infinite where exactly one is no number.
inline double Difference(const TensorView& got, const TensorView& want, double least = 0) {
  const Reader<double> g(got), w(want);
  double range = least, worst = 0;
  for (int64_t i = 0; i < want.numel(); ++i)
    if (std::isfinite(w[i])) range = std::max(range, std::abs(w[i]));
  for (int64_t i = 0; i < want.numel(); ++i) {
    if (g[i] == w[i] || (std::isnan(g[i]) && std::isnan(w[i]))) continue;
    const double d = std::abs(g[i] - w[i]) / range;
    worst = std::isfinite(d) ? std::max(worst, d) : HUGE_VAL;
  }
  return worst;
}

// The kernel, with the inner loops of every instruction set that this CPU has, against the reference: within 1e-5 of the range, and bit by bit with
// other numbers of threads.
inline void Check(const OpSample& s) {
  SCOPED_TRACE(s.where);
  std::vector<SampleTensor> want, got, threaded;
  const Status expected = RunKernel(s, GetOp(s.op).reference, nullptr, nullptr, &want);
  // A sum of n products of numbers around 1 is around sqrt(n), and rounded accordingly, also where it happens to come out as next to nothing.
  const bool sums = s.op == OpId::kLinear || s.op == OpId::kMatmul || s.op == OpId::kBmm || s.op == OpId::kQuantizedLinear;
  // Attention is a mean of numbers around 1 with the same property.
  const bool mean = s.op == OpId::kAttention || s.op == OpId::kQuantizedAttention;
  const double least = mean ? 0.1 : sums && !s.inputs[0].sizes.empty() ? std::sqrt(static_cast<double>(s.inputs[0].sizes.back())) / 2 : 0;
  for (const VectorKernels* variant : VectorVariants()) {
    SCOPED_TRACE(variant->name);
    UseVectors(variant);
    const Status status = RunKernel(s, FindKernel(s.op), FindScratch(s.op), nullptr, &got);
    ASSERT_EQ(status.ToString(), expected.ToString());
    for (size_t i = 0; i < want.size(); ++i) {
      if (IsFloat(want[i].dtype) && !(GetOp(s.op).traits & kDataMovement)) EXPECT_LE(Difference(got[i].view(), want[i].view(), least), 1e-5);
      else EXPECT_EQ(got[i].bytes, want[i].bytes);
    }
    // How work is cut does not depend on the instruction set.
    if (variant != VectorVariants().back()) continue;
    for (size_t threads : {2, 3}) {
      EXPECT_EQ(RunKernel(s, FindKernel(s.op), FindScratch(s.op), Pool(threads), &threaded).ToString(), status.ToString());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(threaded[i].bytes, got[i].bytes) << threads << " threads differ from one";
    }
  }
  UseVectors(nullptr);
}

}  // namespace dovetail
