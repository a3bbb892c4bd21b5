#include "llm/generate.h"

#include <gtest/gtest.h>

namespace dovetail {
namespace {

// Says `script` token by token after a prompt of any length, and notes how it was called.
class ScriptedModel final : public LanguageModel {
 public:
  ScriptedModel(std::vector<int64_t> script, int64_t chunk, int64_t context, size_t vocabulary)
      : script_(std::move(script)), chunk_(chunk), context_(context), logits_(vocabulary) {}
  Status Forward(std::span<const int64_t> tokens, int64_t first_position, std::span<const float>* logits) override {
    calls.emplace_back(first_position, std::vector<int64_t>(tokens.begin(), tokens.end()));
    if (first_position == fail_at) return InvalidArgument("broken");
    read_ += static_cast<int64_t>(tokens.size());
    logits_.assign(logits_.size(), 0);
    const int64_t said = read_ - prompt_size;
    if (said >= 0 && said < static_cast<int64_t>(script_.size())) logits_.at(static_cast<size_t>(script_[static_cast<size_t>(said)])) = 1;
    *logits = logits_;
    return OkStatus();
  }
  int64_t max_chunk() const override { return chunk_; }
  int64_t context_length() const override { return context_; }

  std::vector<std::pair<int64_t, std::vector<int64_t>>> calls;
  int64_t prompt_size = 0, fail_at = -1;

 private:
  std::vector<int64_t> script_;
  int64_t chunk_, context_, read_ = 0;
  std::vector<float> logits_;
};

class GenerateTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::Load("tests/llm/gpt2.tokenizer.json");
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    tokenizer = std::move(*loaded);
    eos = *tokenizer->TokenId("</s>");
  }
  ScriptedModel Model(std::string_view says, bool ends, int64_t chunk, int64_t context) {
    std::vector<int64_t> script = *tokenizer->Encode(says, false);
    said = script;
    if (ends) script.push_back(eos);
    ScriptedModel model(script, chunk, context, static_cast<size_t>(tokenizer->vocab_size()));
    model.prompt_size = static_cast<int64_t>(prompt.size());
    return model;
  }
  std::unique_ptr<Tokenizer> tokenizer;
  int64_t eos = 0;
  std::vector<int64_t> prompt = {1, 2, 3, 4, 5, 6, 7}, said;
};

TEST_F(GenerateTest, PrefillsInChunksAndStopsAtEos) {
  ScriptedModel model = Model("Hello \xF0\x9F\x98\x80 there", true, 3, 0);
  std::vector<std::string> pieces;
  const auto on_text = [&](std::string_view piece) {
    pieces.emplace_back(piece);
    return true;
  };
  auto result = Generate(model, *tokenizer, prompt, {.stop_tokens = {eos}, .on_text = on_text});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->text, "Hello \xF0\x9F\x98\x80 there");
  EXPECT_EQ(result->tokens, said);
  EXPECT_EQ(result->reason, StopReason::kStopToken);
  EXPECT_EQ(result->next_position, static_cast<int64_t>(7 + said.size()));
  std::string joined;
  for (const std::string& piece : pieces) {
    EXPECT_EQ(ValidUtf8Prefix(piece), piece.size());  // the emoji's four bytes come together
    joined += piece;
  }
  EXPECT_EQ(joined, result->text);
  EXPECT_GT(pieces.size(), 2u);
  ASSERT_GE(model.calls.size(), 4u);
  EXPECT_EQ(model.calls[0], (std::pair<int64_t, std::vector<int64_t>>(0, {1, 2, 3})));
  EXPECT_EQ(model.calls[1], (std::pair<int64_t, std::vector<int64_t>>(3, {4, 5, 6})));
  EXPECT_EQ(model.calls[2], (std::pair<int64_t, std::vector<int64_t>>(6, {7})));
  EXPECT_EQ(model.calls[3], (std::pair<int64_t, std::vector<int64_t>>(7, {said[0]})));
  EXPECT_GT(result->prefill_tokens_per_s, 0);
  EXPECT_GT(result->decode_tokens_per_s, 0);
  EXPECT_GT(result->first_token_seconds, 0);
}

TEST_F(GenerateTest, StopsAtMaxTokensTheContextAndTheCaller) {
  ScriptedModel model = Model("one two three four", true, 8, 0);
  auto result = Generate(model, *tokenizer, prompt, {.max_tokens = 2, .stop_tokens = {eos}});
  EXPECT_EQ(result->tokens.size(), 2u);
  EXPECT_EQ(result->reason, StopReason::kMaxTokens);
  EXPECT_EQ(result->next_position, 8);  // the second token is not read

  ScriptedModel small = Model("one two three four", true, 8, 9);
  result = Generate(small, *tokenizer, prompt, {.stop_tokens = {eos}});
  EXPECT_EQ(result->reason, StopReason::kContextFull);
  EXPECT_EQ(result->tokens.size(), 3u);

  ScriptedModel quiet = Model("one two three four", true, 8, 0);
  result = Generate(quiet, *tokenizer, prompt, {.on_text = [](std::string_view) { return false; }});
  EXPECT_EQ(result->reason, StopReason::kCaller);
  EXPECT_EQ(result->tokens.size(), 1u);
}

TEST_F(GenerateTest, ErrorsSayWhatToDo) {
  ScriptedModel model = Model("x", true, 3, 5);
  const std::string too_long(Generate(model, *tokenizer, prompt, {}).status().message());
  EXPECT_NE(too_long.find("the prompt has 7 tokens, but the model's cache has room for 5: shorten the prompt"), std::string::npos) << too_long;
  EXPECT_TRUE(model.calls.empty());
  ScriptedModel used = Model("x", true, 3, 12);
  const std::string full(Generate(used, *tokenizer, prompt, {.first_position = 8}).status().message());
  EXPECT_NE(full.find("room for 4 more (it holds 12, and 8 are used)"), std::string::npos) << full;
  EXPECT_FALSE(Generate(used, *tokenizer, {}, {}).ok());
  ScriptedModel broken = Model("x", true, 3, 0);
  broken.fail_at = 3;
  EXPECT_NE(Generate(broken, *tokenizer, prompt, {}).status().ToString().find("prefilling positions 3 to 5"), std::string::npos);
}

}  // namespace
}  // namespace dovetail
