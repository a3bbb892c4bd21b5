#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "dovetail/program.h"
#include "format/format_samples.h"

namespace dovetail {
namespace {

constexpr int32_t kRows = 2048, kColumns = 1024;  // 8 MiB, a row to a page

// out = rows of a table by 128 indices. With a state, that nothing reads, the table is one of a program that decodes.
pte::ProgramDesc Lookup(bool with_state) {
  std::vector<float> table(size_t{kRows} * kColumns);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i / kColumns);
  pte::ProgramDesc p;
  p.constants = {samples::Bytes<float>({0}), samples::Bytes(table)};
  pte::MethodDesc m;
  pte::TensorDesc weight{.dtype = DType::kF32, .sizes = {kRows, kColumns}, .data_buffer_idx = 2, .fully_qualified_name = "table"};
  m.values = {samples::Planned({128}, 64, DType::kI64), weight, samples::Planned({128, kColumns}, 64 + 1024), int64_t{-1}, false};
  if (with_state) {
    p.mutable_initial = {samples::Bytes<float>({10, 20})};
    pte::TensorDesc state = samples::Planned({2}, 0);
    state.data_buffer_idx = 1;
    state.fully_qualified_name = "s";
    m.values.push_back(state);
  }
  m.inputs = {0};
  m.outputs = {2};
  m.operators = {{"aten::embedding", "out"}};
  m.instructions = {pte::KernelCallDesc{0, {1, 0, 3, 4, 4, 2, 2}}};
  m.non_const_buffer_sizes = {0, 64 + 1024 + 128 * kColumns * 4};
  p.methods.push_back(std::move(m));
  return p;
}

// Bytes of the file that this process has mapped with pages behind them.
size_t ResidentBytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  size_t kilobytes = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long value = 0;
    if (line.find('-') < line.find(' ')) inside = line.ends_with(path);
    if (inside && std::sscanf(line.c_str(), "Rss: %lu kB", &value) == 1) kilobytes += value;
  }
  return kilobytes * 1024;
}

void LookUp(bool with_state, size_t* resident) {
  const std::string path = ::testing::TempDir() + "table_lookup_test.pte";
  const auto bytes = pte::SerializePte(Lookup(with_state));
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
  auto program = Program::Load(path);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ((*program)->states().size(), with_state ? 1u : 0u);
  auto instance = (*program)->CreateInstance({.threads = 2});
  ASSERT_TRUE(instance.ok());
  auto method = (*instance)->LoadMethod("forward");
  ASSERT_TRUE(method.ok()) << method.status().ToString();
  std::vector<int64_t> indices(128);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i * 16 + 3);
  const TensorView input(DType::kI64, std::array<int64_t, 1>{128}, indices.data());
  for (int call = 0; call < 2; ++call) {
    const Status s = (*method)->Execute({&input, 1});
    ASSERT_TRUE(s.ok()) << s.ToString();
    const TensorView& out = (*method)->outputs()[0];
    for (size_t i = 0; i < 128; ++i) {
      ASSERT_EQ(out.as<float>()[i * kColumns], static_cast<float>(indices[i]));
      ASSERT_EQ(out.as<float>()[i * kColumns + kColumns - 1], static_cast<float>(indices[i]));
    }
  }
  indices[77] = kRows;  // in the third part of them
  const Status s = (*method)->Execute({&input, 1});
  EXPECT_NE(s.ToString().find("2048"), std::string::npos) << s.ToString();
  *resident = ResidentBytes(path);
  std::filesystem::remove(path);
}

// Each index is in another 64 KiB, which is what a page fault maps.
TEST(TableLookup, LetsPagesGoWhereThereAreStates) {
  size_t with = SIZE_MAX, without = 0;
  LookUp(true, &with);
  LookUp(false, &without);
  EXPECT_LT(with, size_t{kRows} * kColumns * 4 / 2);
  EXPECT_GT(without, 128u * 4096);
}

}  // namespace
}  // namespace dovetail
