#include <gtest/gtest.h>

#include <cstring>

#include "ir/graph.h"

namespace dovetail {
namespace {

TEST(Constant, StrideOfADimOfOneHasNoMeaning) {
  const float values[4] = {0, 1, 2, 3};
  auto c = MakeConstant("w", TensorType(DType::kF32, Shape{2, 1}), DType::kF32, std::as_bytes(std::span(values)), {2, INT64_MAX}, 1);
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_EQ(c->strides, (std::vector<int64_t>{2, 0}));
  float copied[2] = {};
  c->CopyTo(reinterpret_cast<std::byte*>(copied));
  EXPECT_EQ(copied[0], 1);
  EXPECT_EQ(copied[1], 3);
}

TEST(Constant, AnEmptyOneHasNoStridesAndNoOffset) {
  const std::vector<std::byte> storage(16);
  auto c = MakeConstant("w", TensorType(DType::kF32, Shape{0, INT64_MAX, INT64_MAX}), DType::kF32, storage, {INT64_MIN, 1, 7}, INT64_MAX);
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_EQ(c->strides, (std::vector<int64_t>{0, 0, 0}));
  EXPECT_TRUE(c->contiguous());
  EXPECT_TRUE(c->bytes().empty());
  EXPECT_TRUE(MakeOwnedConstant("w", c->type, {}).contiguous());
}

TEST(Constant, ViewsPastTheStorageAreRefused) {
  const std::vector<std::byte> storage(16);
  const auto error = [&](Shape shape, std::vector<int64_t> strides, int64_t offset) {
    auto c = MakeConstant("w", TensorType(DType::kF32, shape), DType::kF32, storage, std::move(strides), offset);
    return c.ok() ? "no error" : std::string(c.status().message());
  };
  EXPECT_EQ(error({4}, {1}, 0), "no error");
  EXPECT_EQ(error({4}, {-1}, 3), "no error");
  EXPECT_EQ(error({4}, {1}, 1), "constant 'w' of type f32[4] reaches past the 16 bytes of its storage");
  EXPECT_EQ(error({2}, {-1}, 0), "constant 'w' of type f32[2] reaches past the 16 bytes of its storage");
  EXPECT_EQ(error({2}, {INT64_MAX}, INT64_MAX), "constant 'w' of type f32[2] reaches past the 16 bytes of its storage");
  EXPECT_EQ(error({0, 7}, {INT64_MIN, 1}, INT64_MAX), "no error");
  EXPECT_EQ(error({INT64_MAX, INT64_MAX}, {0, 0}, 0), "constant 'w' is too large");
}

}  // namespace
}  // namespace dovetail
