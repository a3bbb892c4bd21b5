#include "backends/xnnpack/delegate/depthwise_kernels.h"

#include <gtest/gtest.h>

#include "backends/xnnpack/delegate/allocator.h"

namespace dovetail {
namespace {

constexpr const char* kNone = "no depthwise kernels for this processor, or XNNPACK's cannot be linked";

TEST(DepthwiseKernels, GiveTheBitsThatXnnpackGives) {
  size_t count = 0;
  const DepthwiseKernelPair* pairs = DepthwiseKernels(&count);
  if (count == 0) GTEST_SKIP() << kNone;
  for (size_t i = 0; i < count; ++i) {
    const DepthwiseKernelPair& pair = pairs[i];
    uint32_t seed = 1;
    // The strides of square kernels moving by one and by two, of ones that share no column, and of other shapes.
    for (const size_t stride : {pair.column, 2 * pair.column, pair.taps, size_t{1}, size_t{4}})
      for (size_t channels = 1; channels <= 129; ++channels)
        for (const size_t width : {1, 2, 3, 4, 7, 14})
          ASSERT_TRUE(SameResults(pair, {channels, width, stride, seed++}))
              << pair.name << ": " << channels << " channels, " << width << " outputs, " << stride << " pointers from one to the next";
    EXPECT_TRUE(SameResults(pair, {960, 7, pair.column})) << pair.name;
  }
}

TEST(DepthwiseKernels, TheComparisonFindsADifference) {
  size_t count = 0;
  const DepthwiseKernelPair* pairs = DepthwiseKernels(&count);
  if (count == 0) GTEST_SKIP() << kNone;
  static DepthwiseKernel* ours;
  for (size_t i = 0; i < count; ++i) {
    DepthwiseKernelPair wrong = pairs[i];
    ours = wrong.ours;
    wrong.ours = [](size_t channels, size_t width, const int8_t** input, const void* weights, int8_t* output, intptr_t input_stride,
                    size_t output_increment, size_t input_offset, const int8_t* zero, const void* params) {
      ours(channels, width, input, weights, output, input_stride, output_increment, input_offset, zero, params);
      output[width * (channels + output_increment) - output_increment - 1] ^= 1;
    };
    EXPECT_FALSE(SameResults(wrong)) << wrong.name;
  }
}

TEST(DepthwiseKernels, AreWhereXnnpackFindsThem) {
  size_t count = 0;
  const DepthwiseKernelPair* pairs = DepthwiseKernels(&count);
  if (count == 0) GTEST_SKIP() << kNone;
  ASSERT_TRUE(InitializeXnnpack().ok());
  for (size_t i = 0; i < count; ++i) EXPECT_NE(FindDepthwiseKernel(pairs[i].ours), nullptr) << pairs[i].name;
}

}  // namespace
}  // namespace dovetail
