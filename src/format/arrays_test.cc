#include "format/arrays.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/crc32.h"
#include "format/npy.h"

// The text contains the other; both are shown if not.
#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << "got: " << (text)

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
  EXPECT_HAS(error({Array("w", DType::kBF16, {1}, "ab")}), "array 'w' is of type bf16, which NumPy does not have; convert it to f32 first");
  EXPECT_HAS(error({Array("w", DType::kF32, {2}, "abcd")}), "array 'w' needs 8 bytes for its shape, and has 4");
  EXPECT_HAS(error({Array("w", DType::kU8, {1}, "a"), Array("w", DType::kU8, {1}, "a")}), "array 'w' is there twice");
  EXPECT_HAS(error({Array("w", DType::kU8, {-1}, "")}), "array 'w' has a negative size, -1");
  EXPECT_HAS(error({Array(std::string(65535, 'n'), DType::kU8, {1}, "a")}), "an array's name has 65535 bytes");
  EXPECT_TRUE(folder.Empty());
}

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// What numpy.savez(f, x=[[1, 2], [3, 4]] of int16, y=float32(1.5)) of NumPy 2.4 wrote.
std::string NumpyNpz() {
  const std::string npy = FromHex("934e554d505901007600");
  return StrCat(FromHex("504b03042d00000000000000210000cadc6dffffffffffffffff05001400"), "x.npy", FromHex("0100100088000000000000008800000000000000"), npy,
                "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2), }", std::string(58, ' '), "\n", FromHex("0100020003000400"),
                FromHex("504b03042d0000000000000021002513e65dffffffffffffffff05001400"), "y.npy", FromHex("0100100084000000000000008400000000000000"), npy,
                "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", std::string(62, ' '), "\n", FromHex("0000c03f"),
                FromHex("504b01022d032d00000000000000210000cadc6d8800000088000000050000000000000000000000800100000000"), "x.npy",
                FromHex("504b01022d032d0000000000000021002513e65d84000000840000000500000000000000000000008001bf000000"), "y.npy",
                FromHex("504b05060000000002000200660000007a0100000000"));
}

TEST(Npz, WrittenByNumpy) {
  const std::string file = NumpyNpz();
  ASSERT_EQ(file.size(), 502u);
  auto arrays = ParseNpz(Bytes(file), "f.npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().ToString();
  ASSERT_EQ(arrays->size(), 2u);
  EXPECT_EQ((*arrays)[0].name, "x");
  EXPECT_EQ((*arrays)[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(Values<int16_t>((*arrays)[0]), (std::vector<int16_t>{1, 2, 3, 4}));
  EXPECT_EQ((*arrays)[1].name, "y");
  EXPECT_TRUE((*arrays)[1].shape.empty());
  EXPECT_EQ(Values<float>((*arrays)[1]), (std::vector<float>{1.5}));
}

template <class T>
std::string With(std::string file, size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
  return file;
}

TEST(Npz, HostileArchives) {
  const std::string good = NumpyNpz();
  const size_t x_entry = 0x17a, y_entry = x_entry + 51, end = good.size() - 22, y_local = 0xbf;
  EXPECT_EQ(NpzError(""), "'f.npz' is no .npz file: it is no zip archive");
  EXPECT_EQ(NpzError("no archive, but long enough to be one"), "'f.npz' is no .npz file: it is no zip archive");
  EXPECT_EQ(NpzError(std::string_view(good).substr(0, 300)), "'f.npz' is truncated: the zip archive's directory at its end is missing");
  EXPECT_EQ(NpzError(With<uint32_t>(good, end + 16, 480)), "'f.npz' is truncated: its zip directory lies outside it");
  EXPECT_EQ(NpzError(With<uint16_t>(good, end + 10, 3)), "'f.npz' is damaged: 3 zip entries do not fit in 102 bytes");
  EXPECT_EQ(NpzError(With<uint16_t>(good, x_entry + 28, 60)), "'f.npz' is damaged: entry 0 of its zip directory");
  EXPECT_EQ(NpzError(With<uint16_t>(good, x_entry + 28, 5 + 51)), "'f.npz' is damaged: entry 1 of its zip directory");
  EXPECT_EQ(NpzError(With<uint16_t>(good, x_entry + 8, 1)), "'f.npz': member 'x.npy' is encrypted");
  const std::string packed = "'f.npz': member 'x.npy' is compressed; write the file with numpy.savez, not numpy.savez_compressed";
  EXPECT_EQ(NpzError(With<uint16_t>(good, x_entry + 10, 8)), packed);
  EXPECT_EQ(NpzError(With<uint32_t>(good, x_entry + 24, 0x7fffffff)), packed);
  EXPECT_EQ(NpzError(With<uint64_t>(good, x_entry + 20, 0x7fffffff7fffffff)),
            "'f.npz': member 'x.npy' of 2147483647 bytes reaches past the end of the file, which is truncated or damaged");
  EXPECT_EQ(NpzError(With<uint64_t>(good, x_entry + 20, ~uint64_t{0})),
            "'f.npz': member 'x.npy' of 4294967295 bytes reaches past the end of the file, which is truncated or damaged");
  EXPECT_EQ(NpzError(With<uint32_t>(good, x_entry + 42, 10)), "'f.npz': member 'x.npy' is damaged: its header is missing");
  EXPECT_EQ(NpzError(With<uint32_t>(good, x_entry + 42, 490)), "'f.npz': member 'x.npy' is damaged: its header is missing");
  EXPECT_EQ(NpzError(With<uint32_t>(good, x_entry + 42, y_local)), "'f.npz' is damaged: two of its members overlap at offset 191");
  EXPECT_EQ(NpzError(With<uint32_t>(good, y_entry + 42, 0)), "'f.npz' is damaged: two of its members overlap at offset 0");
  EXPECT_EQ(NpzError(With<char>(good, y_entry + 46, 'x')), "'f.npz' has two members named 'x.npy'");
  EXPECT_EQ(NpzError(With<char>(good, y_entry + 47, '_')), "'f.npz': member 'y_npy' is no array: its name does not end in .npy");
  EXPECT_EQ(NpzError(With<char>(good, y_local - 8, 7)), "'f.npz': array 'x' is damaged: its bytes do not match their checksum");
}

TEST(Npz, Zip64Directory) {
  // The same file with a zip64 end record, and x's numbers in a zip64 field.
  const std::string good = NumpyNpz();
  const size_t x_entry = 0x17a;
  std::string entry = good.substr(x_entry, 51);
  entry = With<uint64_t>(entry, 20, ~uint64_t{0});
  entry = With<uint32_t>(entry, 42, ~uint32_t{0});
  entry = With<uint16_t>(entry, 30, 28);
  std::string file = StrCat(good.substr(0, x_entry), entry, Raw<uint16_t>({1, 24}), Raw<uint64_t>({0x88, 0x88, 0}), good.substr(x_entry + 51, 51));
  const uint64_t size = file.size() - x_entry, end = file.size();
  file += StrCat(Raw<uint32_t>({0x06064b50}), Raw<uint64_t>({44}), Raw<uint16_t>({45, 45}), Raw<uint32_t>({0, 0}), Raw<uint64_t>({2, 2, size, x_entry}));
  file += StrCat(Raw<uint32_t>({0x07064b50, 0}), Raw<uint64_t>({end}), Raw<uint32_t>({1}));
  file += StrCat(Raw<uint32_t>({0x06054b50}), Raw<uint16_t>({0, 0, 0xffff, 0xffff}), Raw<uint32_t>({0xffffffff, 0xffffffff}), Raw<uint16_t>({0}));
  auto arrays = ParseNpz(Bytes(file), "f.npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().ToString();
  ASSERT_EQ(arrays->size(), 2u);
  EXPECT_EQ(Values<int16_t>((*arrays)[0]), (std::vector<int16_t>{1, 2, 3, 4}));
  EXPECT_EQ(NpzError(With<uint16_t>(file, x_entry + 53, 8)), "'f.npz': member 'x.npy' is damaged: its zip64 field has 8 bytes");
  EXPECT_EQ(NpzError(With<uint64_t>(file, file.size() - 22 - 12, ~uint64_t{0})), "'f.npz' is damaged: its zip64 end record is missing");
  EXPECT_EQ(NpzError(With<uint64_t>(file, end + 32, ~uint64_t{0})),
            StrCat("'f.npz' is damaged: 18446744073709551615 zip entries do not fit in ", size, " bytes"));
}

TEST(Npy, Headers) {
  const std::string data = Raw<int32_t>({1, 2, 3});
  for (const auto& [dictionary, version] : {std::pair<std::string_view, char>("{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }   \n", 1),
                                            {"{'descr': '<i4', 'fortran_order': True, 'shape': (3,)}", 2},
                                            {"{\"shape\":(3L,),\"descr\":\"=i4\",\"fortran_order\":False}", 3}}) {
    auto a = ParseNpy(Bytes(Npy(dictionary, data, version)), "x", "'f.npy'");
    ASSERT_TRUE(a.ok()) << a.status().ToString();
    EXPECT_EQ(a->shape, (std::vector<int64_t>{3}));
    EXPECT_EQ(Values<int32_t>(*a), (std::vector<int32_t>{1, 2, 3}));
  }
}

TEST(Npy, FortranOrderBecomesRowMajor) {
  // numpy.save of asfortranarray(arange(6).reshape(2, 3)).
  const std::string_view two = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }";
  auto a = ParseNpy(Bytes(Npy(two, Raw<int32_t>({0, 3, 1, 4, 2, 5}))), "x", "'f.npy'");
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  EXPECT_EQ(Values<int32_t>(*a), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  // ... and of arange(12).reshape(2, 3, 1, 2).
  const std::string_view four = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 1, 2), }";
  a = ParseNpy(Bytes(Npy(four, Raw<uint8_t>({0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}))), "x", "'f.npy'");
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  EXPECT_EQ(Values<uint8_t>(*a), (std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(NpyError(Npy("{'descr': '|u1', 'fortran_order': True, 'shape': (4611686018427387904, 0), }")), "no error");
}

TEST(Npy, DamagedHeaders) {
  const std::string good = Npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }", "a");
  EXPECT_EQ(NpyError(good), "no error");
  EXPECT_EQ(NpyError("\x93NUMPX"), "'f.npy' is no .npy: it does not start with \\x93NUMPY");
  for (size_t n : {6, 7, 9}) EXPECT_EQ(NpyError(std::string_view(good).substr(0, n)), "'f.npy' is truncated: its .npy header is incomplete") << n;
  EXPECT_EQ(NpyError(std::string_view(good).substr(0, 30)), "'f.npy' is truncated: its .npy header of 57 bytes reaches past its end");
  EXPECT_EQ(NpyError(Npy("{}", "", 4)), "'f.npy' is of .npy version 4; versions 1 to 3 are known");
  EXPECT_EQ(NpyError(With<uint32_t>(Npy("{}", "", 2), 8, ~uint32_t{0})), "'f.npy' is truncated: its .npy header of 4294967295 bytes reaches past its end");
  EXPECT_EQ(NpyError(With<uint16_t>(good, 8, 60)), "'f.npy' is truncated: its .npy header of 60 bytes reaches past its end");
  EXPECT_HAS(NpyError(With<uint16_t>(good, 8, 40)), "damaged .npy header: no string at byte 40 of its dictionary");
  EXPECT_HAS(NpyError(With<uint16_t>(good, 8, 0)), "damaged .npy header: no '{' at byte 0");
  EXPECT_HAS(NpyError(Npy("{}")), "no descr, fortran_order or shape");
  EXPECT_HAS(NpyError(Npy("{'shape': (1,), 'shape': (1,)}")), "unexpected key 'shape'");
  EXPECT_HAS(NpyError(Npy("{'shape': (1,)} {")), "more text");
  EXPECT_HAS(NpyError(Npy("{'shape'}")), "no ':'");
  EXPECT_HAS(NpyError(Npy("{'shape: (1,)}")), "an unfinished string");
  EXPECT_HAS(NpyError(Npy("{'fortran_order': 1}")), "neither True nor False");
  EXPECT_HAS(NpyError("'|u1'", "(1 2)"), "no ','");
  EXPECT_HAS(NpyError("'|u1'", "(,)"), "no size");
  EXPECT_HAS(NpyError("'|u1'", "(9223372036854775808,)"), "a size that does not fit in 63 bits");
}

TEST(Npy, HostileShapesAndTypes) {
  EXPECT_EQ(NpyError("'<f4'", "(2,)"), "'f.npy' needs 8 bytes for its shape, and 0 follow its header");
  EXPECT_EQ(NpyError(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "nine char")),
            "'f.npy' needs 8 bytes for its shape, and 9 follow its header");
  EXPECT_EQ(NpyError("'|u1'", "(9223372036854775807,)"), "'f.npy' needs 9223372036854775807 bytes for its shape, and 0 follow its header");
  EXPECT_EQ(NpyError("'<f4'", "(4294967296, 4294967296)"), "'f.npy' has a shape whose size in bytes does not fit in 63 bits");
  EXPECT_EQ(NpyError("'<f4'", "(0, 4294967296, 4294967296)"), "'f.npy' has a shape whose size in bytes does not fit in 63 bits");
  EXPECT_EQ(NpyError("'<f4'", "(4294967296, 4294967296, 0)"), "'f.npy' has a shape whose size in bytes does not fit in 63 bits");
  EXPECT_EQ(NpyError("'<f4'", "(-1,)"), "'f.npy' has a negative size, -1");
  EXPECT_EQ(NpyError(Npy("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", "\2")),
            "'f.npy' is of bools, and holds the byte 2 where only 0 and 1 may be");
  EXPECT_EQ(NpyError("'>f4'", "(1,)"), "'f.npy' is big-endian ('>f4'); a.astype(a.dtype.newbyteorder('<')) converts it");
  EXPECT_EQ(NpyError("'|O'", "(1,)"), "'f.npy' holds Python objects ('|O'), which are never loaded");
  EXPECT_HAS(NpyError("'<V2'", "(1,)"), "has an element type that NumPy does not know ('<V2'); bf16 and the like can be stored in .safetensors");
  EXPECT_HAS(NpyError("'<u8'", "(1,)"), "has the element type '<u8'; Dovetail reads");
  EXPECT_HAS(NpyError("[('a', '<f4')]", "(1,)"), "elements that are structures or arrays themselves");
}

TEST(Safetensors, Reads) {
  const std::string data = StrCat(Raw<uint16_t>({0x3f80, 0x4000}), Raw<uint16_t>({0x3c00}), "\1");
  auto arrays = ParseSafetensors(Bytes(Safetensors(R"({"__metadata__":{"format":"pt"},"h":{"dtype":"F16","shape":[],"data_offsets":[4,6]},)"
                                                   R"("b":{"data_offsets":[0,4],"shape":[1,2],"dtype":"BF16"},)"
                                                   R"("e":{"dtype":"C64","shape":[0,3],"data_offsets":[4,4]},)"
                                                   R"("t":{"dtype":"BOOL","shape":[1],"data_offsets":[6,7]}}   )",
                                                   data)),
                                 "f");
  ASSERT_TRUE(arrays.ok()) << arrays.status().ToString();
  ASSERT_EQ(arrays->size(), 4u);
  EXPECT_EQ((*arrays)[0].name, "h");
  EXPECT_EQ((*arrays)[0].dtype, DType::kF16);
  EXPECT_TRUE((*arrays)[0].shape.empty());
  EXPECT_EQ(Values<uint16_t>((*arrays)[0]), (std::vector<uint16_t>{0x3c00}));
  EXPECT_EQ((*arrays)[1].dtype, DType::kBF16);
  EXPECT_EQ((*arrays)[1].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Values<uint16_t>((*arrays)[1]), (std::vector<uint16_t>{0x3f80, 0x4000}));
  EXPECT_EQ((*arrays)[2].dtype, DType::kC64);
  EXPECT_EQ((*arrays)[2].shape, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(Values<uint8_t>((*arrays)[3]), (std::vector<uint8_t>{1}));
}

TEST(Safetensors, WrittenByItsOwnLibrary) {
  auto arrays = LoadArrays("tests/fixtures/sig_constants.ref.safetensors");
  ASSERT_TRUE(arrays.ok()) << arrays.status().ToString();
  ASSERT_EQ(arrays->size(), 2u);
  EXPECT_EQ((*arrays)[0].name, "in.0.0");
  EXPECT_EQ((*arrays)[1].name, "out.0.0");
  EXPECT_EQ((*arrays)[1].shape, (std::vector<int64_t>{3, 2}));
  EXPECT_FLOAT_EQ(Values<float>((*arrays)[1])[0], 2.945374f);
}

TEST(Safetensors, EveryTypeName) {
  for (const auto& [text, dtype] : {std::pair<std::string_view, DType>("BOOL", DType::kBool), {"U8", DType::kU8}, {"I8", DType::kI8}, {"I16", DType::kI16},
                                    {"I32", DType::kI32}, {"I64", DType::kI64}, {"U16", DType::kU16}, {"U32", DType::kU32}, {"F16", DType::kF16},
                                    {"BF16", DType::kBF16}, {"F32", DType::kF32}, {"F64", DType::kF64}, {"C64", DType::kC64}}) {
    const std::string header = StrCat(R"({"x":{"dtype":")", text, R"(","shape":[1],"data_offsets":[0,)", ByteSize(dtype), "]}}");
    auto arrays = ParseSafetensors(Bytes(Safetensors(header, std::string(ByteSize(dtype), '\0'))), "f");
    ASSERT_TRUE(arrays.ok()) << arrays.status().ToString();
    EXPECT_EQ((*arrays)[0].dtype, dtype);
  }
  EXPECT_EQ(SafetensorsError(Safetensors(R"({"x":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "a")),
            "'f': array 'x' has the element type 'F8_E4M3', which Dovetail does not have");
}

// The error of a file with the u8 arrays "a" and "b", which have these sizes and data_offsets, and `data` bytes of data.
std::string LayoutError(std::string_view a_size, std::string_view a_offsets, std::string_view b_size, std::string_view b_offsets, size_t data) {
  const auto entry = [](std::string_view size, std::string_view offsets) {
    return StrCat(R"({"dtype":"U8","shape":[)", size, R"(],"data_offsets":[)", offsets, "]}");
  };
  return SafetensorsError(Safetensors(StrCat(R"({"a":)", entry(a_size, a_offsets), R"(,"b":)", entry(b_size, b_offsets), "}"), std::string(data, 'x')));
}

TEST(Safetensors, HostileLayouts) {
  EXPECT_EQ(LayoutError("2", "0,2", "1", "2,3", 3), "no error");
  EXPECT_EQ(LayoutError("2", "0,2", "2", "1,3", 3), "'f': array 'b' overlaps the one before it, at byte 1 of the data");
  EXPECT_EQ(LayoutError("1", "0,1", "1", "2,3", 3), "'f': bytes 1 to 2 of the data, before array 'b', belong to no array");
  EXPECT_EQ(LayoutError("1", "0,1", "1", "1,2", 5), "'f': the last 3 bytes of the data belong to no array");
  EXPECT_EQ(LayoutError("1", "0,1", "2", "1,3", 2), "'f': array 'b' ends at byte 3 of the data, of which there are 2; the file is truncated or damaged");
  EXPECT_EQ(LayoutError("3", "0,2", "0", "2,2", 2), "'f': array 'a' needs 3 bytes for its shape, and has 2");
  EXPECT_EQ(LayoutError("2", "2,0", "0", "2,2", 2), "'f': array 'a' has data_offsets that are no [begin, end]");
  EXPECT_EQ(LayoutError("2", "0,2,2", "0", "2,2", 2), "'f': array 'a' has data_offsets that are no [begin, end]");
  EXPECT_EQ(LayoutError("9223372036854775807", "0,9223372036854775807", "0", "0,0", 0),
            "'f': array 'a' ends at byte 9223372036854775807 of the data, of which there are 0; the file is truncated or damaged");
  EXPECT_EQ(LayoutError("4294967296,4294967296", "0,0", "0", "0,0", 0), "'f': array 'a' has a shape whose size in bytes does not fit in 63 bits");
  EXPECT_EQ(SafetensorsError(Safetensors(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\xff")),
            "'f': array 'a' is of bools, and holds the byte 255 where only 0 and 1 may be");
}

TEST(Safetensors, DamagedHeaders) {
  EXPECT_EQ(SafetensorsError("abc"), "'f' is no .safetensors file: it has 3 bytes");
  EXPECT_EQ(SafetensorsError(Raw<uint64_t>({100})), "'f' is truncated: its header of 100 bytes reaches past its end");
  EXPECT_EQ(SafetensorsError(Raw<uint64_t>({~uint64_t{0}})),
            "'f' is no .safetensors file, or damaged: a header of 18446744073709551615 bytes is longer than the format allows");
  EXPECT_EQ(SafetensorsError(Safetensors("")), "'f' is no .safetensors file: its header is no JSON object");
  EXPECT_EQ(SafetensorsError(Safetensors("[]")), "'f' is no .safetensors file: its header is no JSON object");
  EXPECT_EQ(SafetensorsError(Safetensors("{}")), "no error");
  EXPECT_EQ(SafetensorsError(Safetensors("{} {}")), "'f': its header is not JSON, at byte 4");
  EXPECT_EQ(SafetensorsError(Safetensors(R"({"a":{"dtype":"U8)")), "'f': its header is not JSON, at byte 18");
  const auto error = [](std::string_view entry) { return SafetensorsError(Safetensors(StrCat(R"({"a":)", entry, "}"))); };
  const std::string refused = " in the header, which the format does not allow";
  EXPECT_EQ(error(R"({"dtype":"U8","shape":[1]})"), "'f': array 'a' has no dtype, no shape or no data_offsets in the header");
  EXPECT_EQ(error("3"), "'f': array 'a' has a number" + refused);
  EXPECT_EQ(error("[]"), "'f': array 'a' has an array" + refused);
  EXPECT_EQ(error(R"({"shape":[-1]})"), "'f': array 'a' has a negative number as 'shape'" + refused);
  EXPECT_EQ(error(R"({"shape":[18446744073709551615]})"), "'f': array 'a' has a number as 'shape'" + refused);
  EXPECT_EQ(error(R"({"shape":[1.5]})"), "'f': array 'a' has a number that is no integer as 'shape'" + refused);
  EXPECT_EQ(error(R"({"shape":[[1]]})"), "'f': array 'a' has an array as 'shape'" + refused);
  EXPECT_EQ(error(R"({"shape":[{}]})"), "'f': array 'a' has an object as 'shape'" + refused);
  EXPECT_EQ(error(R"({"shape":[1],"shape":[1]})"), "'f': array 'a' has an array as 'shape'" + refused);
  EXPECT_EQ(error(R"({"dtype":null})"), "'f': array 'a' has null as 'dtype'" + refused);
  EXPECT_EQ(error(R"({"other":"U8"})"), "'f': array 'a' has a string as 'other'" + refused);
  EXPECT_EQ(error(R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{})"), "'f': two arrays have the name 'a'");
  EXPECT_EQ(SafetensorsError(Safetensors(R"({"__metadata__":{"a":[1]}})")), "'f': __metadata__ has an array as 'a'" + refused);
  EXPECT_HAS(SafetensorsError(Safetensors(StrCat(R"({"a":)", std::string(100'000, '[')))), "'f': array 'a' has an array");
}

TEST(LoadArrays, ByEnding) {
  const Folder folder;
  auto npy = LoadArrays(folder.Write("a.npy", Npy("{'descr': '<i2', 'fortran_order': False, 'shape': (), }", Raw<int16_t>({7}))));
  ASSERT_TRUE(npy.ok()) << npy.status().ToString();
  ASSERT_EQ(npy->size(), 1u);
  EXPECT_EQ((*npy)[0].name, "input_0");
  EXPECT_EQ(Values<int16_t>((*npy)[0]), (std::vector<int16_t>{7}));
  EXPECT_EQ(LoadArrays("x.pt").status().message(), "'x.pt': arrays are read from .npz, .npy and .safetensors files");
  EXPECT_EQ(LoadArrays(folder / "none.npz").status().code(), Code::kNotFound);
  EXPECT_EQ(LoadArrays(folder.Write("empty.npz", "")).status().code(), Code::kCorrupt);
}

TEST(Crc32, OfPieces) {
  const std::string_view digits = "123456789 and some more text after the check value";
  EXPECT_EQ(Crc32(Bytes(digits.substr(0, 9))), 0xcbf43926u);
  EXPECT_EQ(Crc32(Bytes(digits.substr(9)), Crc32(Bytes(digits.substr(0, 9)))), Crc32(Bytes(digits)));
}

}  // namespace
}  // namespace dovetail
