// Chat templates: a conversation as the text that a model was trained on.
//
// The language is the part of Jinja that such templates use (jinja_*.h); lists and dicts cannot be changed in place, upper
// and lower change ASCII only, include, import, call and recursive loops are errors. Whitespace is cut as transformers
// does. strftime_now is not defined: a prompt does not depend on the clock. Templates are hostile input: their steps,
// nesting and output are bounded, and every error names the line.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "llm/jinja_ast.h"
#include "llm/jinja_eval.h"
#include "llm/tokenizer.h"

namespace dovetail {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// Immutable; Render may be called from several threads.
class ChatTemplate {
 public:
  // `name` stands for the file in messages.
  static Result<ChatTemplate> Parse(std::string_view source, std::string name);

  // The prompt for `messages`; with add_generation_prompt it ends where the assistant's answer begins. bos and eos are
  // the texts of those tokens, empty when there are none.
  Result<std::string> Render(std::span<const ChatMessage> messages, bool add_generation_prompt, std::string_view bos, std::string_view eos) const;
  // The same with all variables of the template from a JSON object: {"messages": [...], "tools": [...], ...}.
  Result<std::string> RenderJson(std::string_view variables, jinja::Limits limits = {}) const;

 private:
  Result<std::string> RenderValues(StringMap<jinja::Value> variables, jinja::Limits limits) const;
  std::string name_;
  jinja::Body body_;
};

// What stands beside a tokenizer.json.
struct ChatFiles {
  std::optional<ChatTemplate> chat_template;
  std::string bos_token, eos_token;        // empty: not given
  std::vector<std::string> looked_for;     // the files, found or not
};

// Looks beside `tokenizer` (a folder, or a tokenizer.json): chat_template.jinja and tokenizer_config.json; beside a
// NAME.tokenizer.json also NAME.chat_template.jinja and NAME.tokenizer_config.json, which come first. Without a .jinja file
// the chat_template of the configuration is taken. Missing files are no error here; broken ones are.
Result<ChatFiles> LoadChatFiles(const std::string& tokenizer);
// The template, or an error that lists the files looked for.
Result<ChatTemplate> TakeChatTemplate(ChatFiles* files);

// The ids that end a text: the eos token, and the special token that the template puts behind what the assistant says.
// `chat_template` may be null.
Result<std::vector<int64_t>> StopTokens(Tokenizer& tokenizer, const ChatFiles& files, const ChatTemplate* chat_template);

}  // namespace dovetail
