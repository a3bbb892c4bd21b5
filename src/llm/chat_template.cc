#include "llm/chat_template.h"

#include <algorithm>

#include "llm/jinja_parser.h"
#include "llm/utf8.h"

namespace dovetail {

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source, std::string name) {
  if (const size_t valid = ValidUtf8Prefix(source); valid != source.size()) return Corrupt(name, " is not UTF-8 at byte ", valid);
  auto body = jinja::ParseTemplate(source);
  if (!body.ok()) return std::move(body).status().While(StrCat("reading the chat template ", name));
  ChatTemplate result;
  result.name_ = std::move(name);
  result.body_ = std::move(body).value();
  return result;
}

Result<std::string> ChatTemplate::RenderValues(StringMap<jinja::Value> variables, jinja::Limits limits) const {
  std::string out;
  jinja::Evaluator evaluator(std::move(variables), limits);
  Status status = evaluator.Run(body_, &out);
  if (!status.ok()) return std::move(status).While(StrCat("applying the chat template ", name_));
  return out;
}

Result<std::string> ChatTemplate::Render(std::span<const ChatMessage> messages, bool add_generation_prompt, std::string_view bos,
                                         std::string_view eos) const {
  std::vector<jinja::Value> list;
  for (const ChatMessage& message : messages) {
    jinja::Dict dict;
    for (const auto& [key, text] : {std::pair("role", &message.role), std::pair("content", &message.content)}) {
      if (const size_t valid = ValidUtf8Prefix(*text); valid != text->size()) {
        return InvalidArgument("the ", key, " of a message is not UTF-8 at byte ", valid);
      }
      DT_RETURN_IF_ERROR(dict.Set(jinja::Value::Text(key), jinja::Value::Text(*text)));
    }
    DT_ASSIGN_OR_RETURN(jinja::Value value, jinja::MakeDict(std::move(dict)));
    list.push_back(std::move(value));
  }
  StringMap<jinja::Value> variables;
  DT_ASSIGN_OR_RETURN(variables["messages"], jinja::MakeList(std::move(list)));
  variables["add_generation_prompt"] = jinja::Value::Bool(add_generation_prompt);
  variables["tools"] = variables["documents"] = jinja::Value::Nothing();
  if (!bos.empty()) variables["bos_token"] = jinja::Value::Text(std::string(bos));
  if (!eos.empty()) variables["eos_token"] = jinja::Value::Text(std::string(eos));
  return RenderValues(std::move(variables), {});
}

Result<std::string> ChatTemplate::RenderJson(std::string_view text, jinja::Limits limits) const {
  json::Document document;
  DT_RETURN_IF_ERROR(json::Parse(text, "the variables of the template", &document));
  DT_ASSIGN_OR_RETURN(const json::Object object, json::AsObject(document.root, "the variables of the template"));
  StringMap<jinja::Value> variables;
  for (const auto& [name, element] : object) {
    DT_ASSIGN_OR_RETURN(variables[std::string(name)], jinja::FromJson(element));
  }
  return RenderValues(std::move(variables), limits);
}

Result<std::vector<int64_t>> StopTokens(Tokenizer& tokenizer, const ChatFiles& files, const ChatTemplate* chat_template) {
  std::vector<int64_t> stops;
  if (!files.eos_token.empty()) {
    const auto id = tokenizer.TokenId(files.eos_token);
    if (!id) return Corrupt("the eos_token '", files.eos_token, "' of tokenizer_config.json is not in the tokenizer");
    stops.push_back(*id);
  }
  if (chat_template == nullptr) return stops;
  // A rendered answer shows what follows one. A template that wants other conversations than this has no say.
  constexpr std::string_view kAnswer = "dovetail-answer";
  const ChatMessage messages[] = {{"user", "dovetail-question"}, {"assistant", std::string(kAnswer)}};
  const auto text = chat_template->Render(messages, false, files.bos_token, files.eos_token);
  if (!text.ok()) return stops;
  const size_t place = text->rfind(kAnswer);
  if (place == std::string::npos) return stops;
  DT_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, tokenizer.Encode(std::string_view(*text).substr(place + kAnswer.size()), false));
  const auto special = std::find_if(ids.begin(), ids.end(), [&](int64_t id) { return tokenizer.IsSpecial(id); });
  if (special != ids.end() && std::find(stops.begin(), stops.end(), *special) == stops.end()) stops.push_back(*special);
  return stops;
}

}  // namespace dovetail
