#include "ops/op_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace dovetail {
namespace {

class OpSampleTest : public testing::TestWithParam<size_t> {};

TEST_P(OpSampleTest, ReferenceMatchesRecording) {
  const OpId id = static_cast<OpId>(GetParam());
  const std::vector<const OpSample*> samples = SamplesOf(id);
  EXPECT_FALSE(samples.empty()) << "no sample of " << GetOp(id).name << " in tests/ops";
  for (const OpSample* s : samples) EXPECT_EQ(RunOpSample(*s, GetOp(id).reference), "") << s->where;
}

std::vector<size_t> WithKernel() {
  std::vector<size_t> ids;
  for (size_t i = 0; i < static_cast<size_t>(OpId::kCount); ++i)
    if (!(GetOp(static_cast<OpId>(i)).traits & kStructural)) ids.push_back(i);
  return ids;
}
INSTANTIATE_TEST_SUITE_P(All, OpSampleTest, testing::ValuesIn(WithKernel()),
                         [](const auto& info) { return std::string(GetOp(static_cast<OpId>(info.param)).name); });

TEST(OpTableTest, SchemasParseAndNamesAreUnique) {
  std::set<std::string_view> names, out_variants;
  for (size_t i = 0; i < static_cast<size_t>(OpId::kCount); ++i) {
    const OpDef& op = GetOp(static_cast<OpId>(i));
    Result<Schema> schema = ParseSchemaChecked(op.schema);
    ASSERT_TRUE(schema.ok()) << schema.status().ToString();
    EXPECT_EQ(schema->name, op.name);
    EXPECT_TRUE(names.insert(op.name).second) << op.name << " is listed twice";
    EXPECT_EQ(FindOp(op.name), static_cast<OpId>(i));
    EXPECT_NE(op.infer, nullptr) << op.name;
    EXPECT_NE(op.reference, nullptr) << op.name;
    if (op.traits & kStructural) continue;
    EXPECT_TRUE(op.out_variant.find("::") != std::string_view::npos) << op.name;
    EXPECT_TRUE(out_variants.insert(op.out_variant).second) << op.out_variant << " is listed twice";
  }
}

TEST(OpTableTest, NoExportNameBelongsToTwoOperators) {
  std::set<std::string_view> seen;
  for (size_t i = 0; i < static_cast<size_t>(OpId::kCount); ++i) {
    std::string_view rest = GetOp(static_cast<OpId>(i)).imports;
    while (!rest.empty()) {
      const size_t blank = std::min(rest.find(' '), rest.size());
      const std::string_view name = rest.substr(0, blank);
      EXPECT_TRUE(seen.insert(name).second) << name;
      EXPECT_GE(std::count(name.begin(), name.end(), '.'), 2) << name;
      rest.remove_prefix(std::min(blank + 1, rest.size()));
    }
  }
}

}  // namespace
}  // namespace dovetail
