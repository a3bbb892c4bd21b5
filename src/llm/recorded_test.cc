// What the Python libraries gave (tests/llm/record.py), against ours.
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "llm/chat_template.h"
#include "llm/json.h"
#include "llm/nfc.h"
#include "llm/tokenizer.h"

namespace dovetail {
namespace {

std::string ReadAll(const std::string& path) {
  auto file = MappedFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  if (!file.ok()) return {};
  return std::string(reinterpret_cast<const char*>(file.value()->bytes().data()), file.value()->bytes().size());
}

std::vector<int64_t> Ids(json::Object row, const char* key) {
  std::vector<int64_t> ids;
  const json::Array array = json::GetArray(row, key, "row").value();
  for (const json::Element id : array) ids.push_back(int64_t(id));
  return ids;
}

TEST(Recorded, Tokenizers) {
  json::Document document;
  ASSERT_TRUE(json::Parse(ReadAll("tests/llm/tokenizer_cases.json"), "cases", &document).ok());
  size_t tokenizers = 0;
  for (const auto& [name, rows] : json::Object(document.root)) {
    SCOPED_TRACE(name);
    auto tokenizer = Tokenizer::Load("tests/llm/" + std::string(name) + ".tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    ++tokenizers;
    for (const json::Element element : json::Array(rows)) {
      const json::Object row(element);
      const std::string text = json::GetString(row, "text", "row").value();
      SCOPED_TRACE(text);
      const std::vector<int64_t> expected = Ids(row, "ids");
      auto ids = tokenizer.value()->Encode(text, false);
      ASSERT_TRUE(ids.ok()) << ids.status().ToString();
      EXPECT_EQ(*ids, expected);
      std::vector<int64_t> with_special = Ids(row, "with_special");
      with_special.insert(with_special.end(), expected.begin(), expected.end());
      EXPECT_EQ(*tokenizer.value()->Encode(text, true), with_special);
      EXPECT_EQ(*tokenizer.value()->Decode(expected, false), json::GetString(row, "decoded", "row").value());
      EXPECT_EQ(*tokenizer.value()->Decode(expected, true), json::GetString(row, "skipped", "row").value());
    }
  }
  EXPECT_GE(tokenizers, 11u);
}

TEST(Recorded, ChatTemplates) {
  json::Document document;
  ASSERT_TRUE(json::Parse(ReadAll("tests/llm/chat_cases.json"), "cases", &document).ok());
  const json::Object root(document.root);
  std::vector<std::string> sources;
  const json::Array templates = json::GetArray(root, "templates", "cases").value(), cases = json::GetArray(root, "cases", "cases").value();
  for (const json::Element source : templates) sources.emplace_back(std::string_view(source));
  size_t rendered = 0, refused = 0;
  for (const json::Element element : cases) {
    const json::Object row(element);
    const std::string& source = sources.at(static_cast<size_t>(json::GetInt(row, "template", "row").value()));
    const std::string variables = simdjson::minify(json::GetObject(row, "context", "row").value());
    SCOPED_TRACE(source + "\n" + variables);
    auto parsed = ChatTemplate::Parse(source, "test.jinja");
    Result<std::string> out = parsed.ok() ? parsed->RenderJson(variables) : Result<std::string>(parsed.status().Clone());
    if (json::Has(row, "error")) {
      ++refused;
      ASSERT_FALSE(out.ok()) << *out;
      EXPECT_TRUE(out.status().message().starts_with("line ")) << out.status().ToString();
    } else {
      ++rendered;
      ASSERT_TRUE(out.ok()) << out.status().ToString();
      EXPECT_EQ(*out, json::GetString(row, "expected", "row").value());
    }
  }
  EXPECT_GE(rendered, 70u);
  EXPECT_GE(refused, 19u);
}

TEST(Nfc, ComposesAndOrders) {
  EXPECT_EQ(ToNfc("plain"), "plain");
  EXPECT_EQ(ToNfc("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(ToNfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");                   // Hangul jamo
  EXPECT_EQ(ToNfc("q\xCC\x87\xCC\xA3"), "q\xCC\xA3\xCC\x87");                                  // dot above, dot below: ordered
  EXPECT_EQ(ToNfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");                                // a composition exclusion
  EXPECT_EQ(ToNfc("\xE2\x84\xAB"), "\xC3\x85");                                                // a singleton: Angstrom sign
}

}  // namespace
}  // namespace dovetail
