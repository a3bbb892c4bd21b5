#include "format/arrays.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "format/crc32.h"
#include "format/npy.h"

namespace dovetail {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

template <class T>
std::string Raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> Values(const NamedArray& a) {
  std::vector<T> values(a.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), a.data.data(), a.data.size());
  return values;
}

NamedArray Array(std::string name, DType dtype, std::vector<int64_t> shape, std::string_view raw) {
  const auto bytes = Bytes(raw);
  return {std::move(name), dtype, std::move(shape), {bytes.begin(), bytes.end()}};
}

std::string Npy(std::string_view dictionary, std::string_view data = {}, char version = 1) {
  std::string s = StrCat("\x93NUMPY", version, '\0');
  const uint32_t length = static_cast<uint32_t>(dictionary.size());
  s.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return StrCat(s, dictionary, data);
}
std::string NpyError(std::string_view npy) {
  auto a = ParseNpy(Bytes(npy), "x", "'f.npy'");
  return a.ok() ? "no error" : std::string(a.status().message());
}
// The error of a header that is right but for `descr` and `shape`.
std::string NpyError(std::string_view descr, std::string_view shape) {
  return NpyError(Npy(StrCat("{'descr': ", descr, ", 'fortran_order': False, 'shape': ", shape, ", }\n")));
}

std::string Safetensors(std::string_view header, std::string_view data = {}) {
  return StrCat(Raw<uint64_t>({header.size()}), header, data);
}
std::string SafetensorsError(std::string_view file) {
  auto a = ParseSafetensors(Bytes(file), "f");
  return a.ok() ? "no error" : std::string(a.status().message());
}
std::string NpzError(std::string_view file) {
  auto a = ParseNpz(Bytes(file), "f.npz");
  return a.ok() ? "no error" : std::string(a.status().message());
}

class Folder {
 public:
  Folder() : path_(std::filesystem::path(::testing::TempDir()) / StrCat("arrays_test.", ::testing::UnitTest::GetInstance()->random_seed(), ".",
                                                                       ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return *this / name;
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool Empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

std::vector<NamedArray> AllTypes() {
  return {Array("bool", DType::kBool, {2}, {"\0\1", 2}),
          Array("u8", DType::kU8, {}, "\xff"),
          Array("i8", DType::kI8, {1, 3, 1}, "abc"),
          Array("i16", DType::kI16, {2}, Raw<int16_t>({-1, 300})),
          Array("i32", DType::kI32, {2, 1}, Raw<int32_t>({-1, 70000})),
          Array("i64", DType::kI64, {1}, Raw<int64_t>({INT64_MIN})),
          Array("u16", DType::kU16, {1}, Raw<uint16_t>({65535})),
          Array("u32", DType::kU32, {1}, Raw<uint32_t>({UINT32_MAX})),
          Array("f16", DType::kF16, {1}, Raw<uint16_t>({0x3c00})),
          Array("f32/with a \xc3\xb6", DType::kF32, {2, 2}, Raw<float>({1, 2, 3, 4})),
          Array("f64", DType::kF64, {1}, Raw<double>({0.1})),
          Array("c64", DType::kC64, {1}, Raw<float>({1, -1})),
          Array("empty", DType::kF32, {3, 0, 5}, "")};
}

TEST(Npz, RoundTripOfEveryType) {
  const Folder folder;
  const std::vector<NamedArray> arrays = AllTypes();
  ASSERT_TRUE(SaveNpz(folder / "a.npz", arrays).ok());
  ASSERT_TRUE(SaveNpz(folder / "b.npz", arrays).ok());
  EXPECT_EQ(folder.Read("a.npz"), folder.Read("b.npz"));
  auto loaded = LoadArrays(folder / "a.npz");
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  ASSERT_EQ(loaded->size(), arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ((*loaded)[i].name, arrays[i].name);
    EXPECT_EQ((*loaded)[i].dtype, arrays[i].dtype) << arrays[i].name;
    EXPECT_EQ((*loaded)[i].shape, arrays[i].shape) << arrays[i].name;
    EXPECT_EQ((*loaded)[i].data, arrays[i].data) << arrays[i].name;
  }
}

TEST(Npz, NothingToSave) {
  const Folder folder;
  ASSERT_TRUE(SaveNpz(folder / "a.npz", {}).ok());
  auto loaded = LoadArrays(folder / "a.npz");
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_TRUE(loaded->empty());
}

TEST(Npz, WhatCannotBeSavedLeavesNoFile) {
  const Folder folder;
  const auto error = [&](std::vector<NamedArray> arrays) { return std::string(SaveNpz(folder / "a.npz", arrays).message()); };
  EXPECT_THAT_CONTAINS(error({Array("w", DType::kBF16, {1}, "ab")}), "array 'w' is of type bf16, which NumPy does not have; convert it to f32 first");
  EXPECT_THAT_CONTAINS(error({Array("w", DType::kF32, {2}, "abcd")}), "array 'w' needs 8 bytes for its shape, and has 4");
  EXPECT_THAT_CONTAINS(error({Array("w", DType::kU8, {1}, "a"), Array("w", DType::kU8, {1}, "a")}), "array 'w' is there twice");
  EXPECT_THAT_CONTAINS(error({Array("w", DType::kU8, {-1}, "")}), "array 'w' has a negative size, -1");
  EXPECT_THAT_CONTAINS(error({Array(std::string(65535, 'n'), DType::kU8, {1}, "a")}), "an array's name has 65535 bytes");
  EXPECT_TRUE(folder.Empty());
}

}  // namespace
}  // namespace dovetail
