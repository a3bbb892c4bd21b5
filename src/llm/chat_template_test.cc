// Files, stop tokens, messages and limits; what templates write is tested against recorded answers in recorded_test.cc.
#include "llm/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dovetail {
namespace {
namespace fs = std::filesystem;

class ChatFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / StrCat("dovetail_chat_", getpid());
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  void Write(const std::string& name, std::string_view text) { std::ofstream(folder / name) << text; }
  std::string Path(const std::string& name) const { return (folder / name).string(); }
  fs::path folder;
};

std::string Rendered(const ChatTemplate& t) {
  const ChatMessage hello[] = {{"user", "hi"}};
  auto out = t.Render(hello, true, "<b>", "<e>");
  return out.ok() ? *out : out.status().ToString();
}

TEST_F(ChatFilesTest, PrefersTheNamedFilesAndFallsBackToTheConfiguration) {
  Write("tokenizer_config.json", R"({"bos_token": null, "eos_token": {"content": "<e>"}, "chat_template": "config {{ messages[0].content }}"})");
  auto files = LoadChatFiles(folder.string());
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  EXPECT_EQ(files->eos_token, "<e>");
  EXPECT_EQ(files->bos_token, "");
  EXPECT_EQ(Rendered(*files->chat_template), "config hi");
  Write("chat_template.jinja", "file {{ messages[0].content }}");
  EXPECT_EQ(Rendered(*LoadChatFiles(Path("tokenizer.json"))->chat_template), "file hi");
  Write("m.chat_template.jinja", "named {{ messages[0].content }}");
  Write("m.tokenizer_config.json", R"({"eos_token": "<x>", "chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]})");
  files = LoadChatFiles(Path("m.tokenizer.json"));
  EXPECT_EQ(Rendered(*files->chat_template), "named hi");
  EXPECT_EQ(files->eos_token, "<x>");
  fs::remove(folder / "m.chat_template.jinja");
  fs::remove(folder / "chat_template.jinja");
  EXPECT_EQ(Rendered(*LoadChatFiles(Path("m.tokenizer.json"))->chat_template), "d");
}

TEST_F(ChatFilesTest, ListsTheFilesLookedFor) {
  auto files = LoadChatFiles(Path("m.tokenizer.json"));
  ASSERT_TRUE(files.ok());
  const std::string message = TakeChatTemplate(&*files).status().ToString();
  for (const char* name : {"m.chat_template.jinja", "/chat_template.jinja", "m.tokenizer_config.json", "/tokenizer_config.json"}) {
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
  Write("tokenizer_config.json", "{");
  EXPECT_NE(LoadChatFiles(Path("m.tokenizer.json")).status().ToString().find("tokenizer_config.json is not JSON"), std::string::npos);
}

TEST(StopTokens, FindsWhatTheTemplatePutsBehindAnAnswer) {
  auto tokenizer = Tokenizer::Load("tests/llm/gpt2.tokenizer.json");
  ASSERT_TRUE(tokenizer.ok());
  const int64_t bos = *tokenizer.value()->TokenId("<s>"), eos = *tokenizer.value()->TokenId("</s>");
  ChatFiles files;
  files.eos_token = "</s>";
  auto turns = ChatTemplate::Parse("{% for m in messages %}{{ m.role }}: {{ m.content }}\n<s>{% endfor %}", "t");
  EXPECT_EQ(*StopTokens(*tokenizer.value(), files, &*turns), (std::vector<int64_t>{eos, bos}));
  EXPECT_EQ(*StopTokens(*tokenizer.value(), files, nullptr), std::vector<int64_t>{eos});
  files.eos_token = "<nowhere>";
  EXPECT_FALSE(StopTokens(*tokenizer.value(), files, nullptr).ok());
}

std::string Error(std::string_view source) {
  auto parsed = ChatTemplate::Parse(source, "t.jinja");
  if (!parsed.ok()) return parsed.status().ToString();
  auto out = parsed->RenderJson(R"({"messages": []})");
  return out.ok() ? "" : out.status().ToString();
}
bool Starts(const std::string& text, std::string_view with) { return text.starts_with(with) || (ADD_FAILURE() << text, false); }

TEST(ChatTemplate, ErrorsNameTheLineAndTheFile) {
  EXPECT_TRUE(Starts(Error("a\n\n{{ x.y }}"), "line 3: 'x' is undefined, it has no 'y'"));
  EXPECT_NE(Error("{{ x.y }}").find("t.jinja"), std::string::npos);
  EXPECT_TRUE(Starts(Error("{% if 1 %}\n"), "line 1: the template ends before {% endif %}"));
  EXPECT_TRUE(Starts(Error("\n{{ raise_exception('no tools') }}"), "line 2: the template refuses this conversation: no tools"));
  EXPECT_TRUE(Starts(Error("{{ strftime_now('%Y') }}"), "line 1: strftime_now is not supported"));
  EXPECT_TRUE(Starts(Error("{% include 'x' %}"), "line 1: the statement {% include %} is not supported"));
  EXPECT_TRUE(Starts(Error("{{ [].append(1) }}"), "line 1: lists cannot be changed by 'append'"));
  EXPECT_TRUE(Starts(Error("{{ '\xFF' }}"), "t.jinja is not UTF-8"));
}

TEST(ChatTemplate, HostileTemplatesEnd) {
  const std::string deep(100'000, '(');
  EXPECT_NE(Error("{{ " + deep + " }}"), "");
  std::string sum = "{{ 1";
  for (int i = 0; i < 50'000; ++i) sum += "+1";
  EXPECT_NE(Error(sum + " }}"), "");
  std::string blocks;
  for (int i = 0; i < 10'000; ++i) blocks += "{% if 1 %}";
  EXPECT_NE(Error(blocks), "");
  EXPECT_NE(Error("{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"), "");
  EXPECT_NE(Error("{% set n = namespace(s='aaaaaaaa') %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}"), "");
  EXPECT_NE(Error("{% set n = namespace(l=[]) %}{% for a in range(9999) %}{% set n.l = [n.l] %}{% endfor %}"), "");
  EXPECT_NE(Error("{% set n = namespace(l=[1]) %}{% for a in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}"), "");
  EXPECT_NE(Error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "");
  EXPECT_NE(Error("{{ 'a' * 99999999999 }}"), "");
  EXPECT_NE(Error("{{ range(1, 99999999999) | list }}"), "");
  EXPECT_NE(Error("{{ 9223372036854775807 + 1 }}"), "");
  EXPECT_NE(Error("{{ (-9223372036854775807 - 1) // -1 }}"), "");
  EXPECT_EQ(Error("{% set n = namespace() %}{% set n.n = [n] %}{{ n.n }}{{ n.n == n.n }}"), "");
}

}  // namespace
}  // namespace dovetail
