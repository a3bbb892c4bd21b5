// Errors, limits and streaming; what the tokens are is tested against recorded answers in recorded_test.cc.
#include "llm/tokenizer.h"

#include <gtest/gtest.h>

namespace dovetail {
namespace {

std::string Message(std::string_view json) {
  auto tokenizer = Tokenizer::Parse(json, "t.json");
  return tokenizer.ok() ? "" : tokenizer.status().ToString();
}
bool Has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// A model with one merge, and room for more fields.
std::string Tiny(std::string_view more) {
  return StrCat(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})", more, "}");
}

TEST(Tokenizer, NamesWhatIsMissingOrUnknown) {
  EXPECT_TRUE(Has(Message("{"), "t.json is not JSON"));
  EXPECT_TRUE(Has(Message("[]"), "t.json must be an object"));
  EXPECT_TRUE(Has(Message("{}"), "t.json: 'model' is missing"));
  EXPECT_TRUE(Has(Message(R"({"model": {"type": "Unigram"}})"), "the model 'Unigram' is not supported"));
  EXPECT_TRUE(Has(Message(Tiny(R"(, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})")), "normalizer.normalizers[0]: the normalizer 'Lowercase'"));
  EXPECT_TRUE(Has(Message(Tiny(R"(, "pre_tokenizer": {"type": "UnicodeScripts"})")), "the pre-tokenizer 'UnicodeScripts' is not supported"));
  EXPECT_TRUE(Has(Message(Tiny(R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})")), "'(' is not one that PCRE2 reads"));
  EXPECT_TRUE(Has(Message(Tiny(R"(, "decoder": {"type": "CTC"})")), "the decoder 'CTC' is not supported"));
  EXPECT_TRUE(Has(Message(Tiny(R"(, "post_processor": {"type": "Other"})")), "the post-processor 'Other' is not supported"));
  EXPECT_TRUE(Has(Message(Tiny(R"(, "added_tokens": [{"content": "x", "id": -1}])")), "the id -1 is out of range"));
  EXPECT_TRUE(Has(Message(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}})"), "makes 'ab', which is not in the vocabulary"));
  EXPECT_TRUE(Has(Message(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a c"]}})"), "joins 'c', which is not in the vocabulary"));
  EXPECT_TRUE(Has(Message(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [3]}})"), "merges[0] must be"));
  EXPECT_TRUE(Has(Message(R"({"model": {"type": "BPE", "vocab": {"a": -5}, "merges": []}})"), "has the id -5"));
  EXPECT_EQ(Message(Tiny("")), "");
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  auto tokenizer = Tokenizer::Parse(Tiny(""), "t.json");
  EXPECT_TRUE(Has(tokenizer.value()->Encode("ab\xFF", false).status().ToString(), "not UTF-8 at byte 2"));
  EXPECT_EQ(*tokenizer.value()->Encode("abab?", false), (std::vector<int64_t>{2, 2}));
}

TEST(Tokenizer, ALongWordTakesNoQuadraticTime) {
  auto tokenizer = Tokenizer::Parse(Tiny(""), "t.json");
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += "ab";
  EXPECT_EQ(tokenizer.value()->Encode(text, false)->size(), 500'000u);
}

TEST(Tokenizer, StreamsWholeCharactersOnly) {
  auto tokenizer = Tokenizer::Load("tests/llm/gpt2.tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const std::string text = "a \xF0\x9F\x98\x80\xE6\x97\xA5";
  const auto ids = *tokenizer.value()->Encode(text, false);
  Decoder decoder = tokenizer.value()->NewDecoder(false);
  std::string all;
  bool waited = false;
  for (const int64_t id : ids) {
    const std::string piece = *decoder.Push(id);
    EXPECT_EQ(ValidUtf8Prefix(piece), piece.size());
    waited = waited || piece.empty();
    all += piece;
  }
  EXPECT_TRUE(waited);
  EXPECT_EQ(all + decoder.Finish(), text);

  Decoder cut = tokenizer.value()->NewDecoder(false);
  EXPECT_EQ(*cut.Push(*tokenizer.value()->TokenId("\xC3\xB0")), "");  // the first byte of the emoji
  EXPECT_EQ(cut.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(*cut.Push(1'000'000), "");
  EXPECT_EQ(*cut.Push(-1), "");
}

TEST(Regex, ReadsRubysSyntax) {
  EXPECT_EQ(*TranslateRubyRegex("\\h{,2}a"), "[0-9a-fA-F]{0,2}a");
  EXPECT_EQ(*TranslateRubyRegex("x(?m:a.b)"), "x(?s:a.b)");
  EXPECT_EQ(*TranslateRubyRegex("(ab){1,3}+c"), "(?:(ab){1,3})+c");
  EXPECT_EQ(*TranslateRubyRegex("\\u0041\\\\"), "\\x{0041}\\\\");
  EXPECT_FALSE(Regex::Compile("[a-z&&[^b]]").ok());
  EXPECT_FALSE(Regex::Compile("(").ok());
}

TEST(Regex, EndlessBacktrackingIsAnError) {
  auto regex = Regex::Compile("(a+a+)+[bc]");
  ASSERT_TRUE(regex.ok());
  EXPECT_TRUE(Has(regex->FindAll(std::string(64, 'a')).status().ToString(), "limit"));
}

TEST(Regex, FindsEmptyMatchesOnce) {
  auto regex = Regex::Compile("x*");
  const auto found = *regex->FindAll("axx\xC3\xA9");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].begin, 1u);
  EXPECT_EQ(found[1].end, 3u);
  EXPECT_EQ(found[2].begin, 5u);
}

}  // namespace
}  // namespace dovetail
