#include "format/qnn_blob.h"

#include <gtest/gtest.h>

#include <cstring>

#include "format/qnn_spec_generated.h"

namespace dovetail {
namespace {

using Bytes = std::vector<std::byte>;
#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

Bytes Write(const Bytes& binary) { return WriteQnnBlob(binary); }
std::string ReadError(const Bytes& bytes) {
  auto blob = ReadQnnBlob(bytes, "delegate 3");
  EXPECT_FALSE(blob.ok());
  return blob.status().ToString();
}

TEST(QnnBlob, IsReadAsItWasWritten) {
  const Bytes binary = {std::byte{1}, std::byte{2}, std::byte{250}};
  const Bytes bytes = Write(binary);
  ASSERT_EQ(bytes.size(), 259u);
  // The layout that ExecuTorch reads.
  const unsigned char head[] = {0xCD, 0xAB, 0x78, 0x56};
  EXPECT_EQ(std::memcmp(bytes.data(), head, 4), 0);
  uint64_t size = 0;
  std::memcpy(&size, bytes.data() + 12, 8);
  EXPECT_EQ(size, 3u);
  for (size_t i = 20; i < 256; ++i) EXPECT_EQ(bytes[i], std::byte{0});
  auto blob = ReadQnnBlob(bytes, "x");
  ASSERT_TRUE(blob.ok()) << blob.status().ToString();
  EXPECT_EQ(Bytes(blob->binary.begin(), blob->binary.end()), binary);
  EXPECT_EQ(ReadQnnBlob(Write(binary), "x")->signature, blob->signature);
  EXPECT_NE(ReadQnnBlob(Write({std::byte{1}}), "x")->signature, blob->signature);
}

TEST(QnnBlob, DamageIsRefused) {
  Bytes bytes = Write(Bytes(10, std::byte{7}));
  EXPECT_HAS(ReadError({}), "delegate 3: 0 bytes are no QNN blob");
  EXPECT_HAS(ReadError(Bytes(bytes.begin(), bytes.begin() + 255)), "255 bytes are no QNN blob");
  EXPECT_HAS(ReadError(Bytes(bytes.begin(), bytes.end() - 1)), "the QNN context binary has 10 bytes, but the blob has only 9 for it");
  EXPECT_HAS(ReadError(Write({})), "the QNN context binary is empty");
  bytes[19] = std::byte{0xff};
  EXPECT_HAS(ReadError(bytes), "but the blob has only 10 for it");
  bytes[0] = std::byte{0};
  EXPECT_HAS(ReadError(bytes), "no QNN context binary");
}

TEST(QnnSpec, IsReadAsItWasWritten) {
  for (bool fp16 : {false, true}) {
    auto spec = ReadQnnCompileSpec(QnnCompileSpec({57, 75, 8, fp16, !fp16}), "x");
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    EXPECT_EQ(spec->soc_model, 57u);
    EXPECT_EQ(spec->arch, 75u);
    EXPECT_EQ(spec->vtcm_mb, 8u);
    EXPECT_EQ(spec->fp16, fp16);
    EXPECT_EQ(spec->shared_weights, !fp16);
  }
}

TEST(QnnSpec, NeedsNoAlignment) {
  Bytes spec = QnnCompileSpec({57, 75, 8, false, false});
  for (size_t shift = 1; shift < 4; ++shift) {
    spec.insert(spec.begin(), std::byte{0});
    auto read = ReadQnnCompileSpec(std::span(spec).subspan(shift), "x");
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->soc_model, 57u);
  }
}

Bytes Spec(int32_t soc, int32_t backend, bool online_prepare) {
  flatbuffers::FlatBufferBuilder b;
  const auto info = qnn_spec::CreateSocInfo(b, soc);
  const auto options = qnn_spec::CreateBackendOptions(b, backend);
  qnn_spec::OptionsBuilder o(b);
  o.add_soc_info(info);
  o.add_backend_options(options);
  o.add_online_prepare(online_prepare);
  b.Finish(o.Finish());
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

TEST(QnnSpec, WhatCannotRunIsRefused) {
  EXPECT_TRUE(ReadQnnCompileSpec(Spec(57, 2, false), "x").ok());
  EXPECT_HAS(ReadQnnCompileSpec(Spec(57, 1, false), "x").status().ToString(), "x: its compile spec is for QNN's backend number 1");
  EXPECT_HAS(ReadQnnCompileSpec(Spec(57, 2, true), "x").status().ToString(), "prepared on the device (online_prepare)");
  EXPECT_HAS(ReadQnnCompileSpec(Spec(-1, 2, false), "x").status().ToString(), "has the number -1 for its SoC");
  const Bytes whole = QnnCompileSpec({57, 75, 8, false, false});
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto cut = ReadQnnCompileSpec(std::span(whole).first(n), "x");
    if (!cut.ok()) EXPECT_EQ(cut.status().ToString(), "x: the compile spec qnn_compile_spec is damaged");
    else EXPECT_GE(n, whole.size() - 8) << "only strings' padding may be missing";
  }
}

}  // namespace
}  // namespace dovetail
