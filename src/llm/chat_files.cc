// Finding and reading what stands beside a tokenizer.json.
#include <filesystem>

#include "base/mapped_file.h"
#include "llm/chat_template.h"
#include "llm/json.h"

namespace dovetail {
namespace {
namespace fs = std::filesystem;
constexpr std::string_view kSuffix = ".tokenizer.json";

// The places of `file` beside the tokenizer, the most special first.
std::vector<std::string> Places(const std::string& tokenizer, std::string_view file) {
  std::error_code error;
  if (fs::is_directory(tokenizer, error)) return {(fs::path(tokenizer) / file).string()};
  std::vector<std::string> places;
  if (tokenizer.ends_with(kSuffix)) places.push_back(StrCat(tokenizer.substr(0, tokenizer.size() - kSuffix.size()), ".", file));
  places.push_back((fs::path(tokenizer).parent_path() / file).string());
  return places;
}

// The first of the places that exists; every one looked at is noted.
Result<std::optional<std::string>> ReadFirst(const std::vector<std::string>& places, ChatFiles* files, std::string* name) {
  for (const std::string& place : places) {
    files->looked_for.push_back(place);
    std::error_code error;
    if (!fs::exists(place, error)) continue;
    DT_ASSIGN_OR_RETURN(const auto mapped, MappedFile::Open(place));
    *name = place;
    return std::optional(std::string(reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()));
  }
  return std::optional<std::string>();
}

// A token of tokenizer_config.json: a string or {"content": string}; anything else counts as not given.
std::string TokenText(json::Object config, std::string_view key) {
  json::Element element;
  std::string_view text;
  if (config[key].get(element)) return {};
  if (!element.get(text)) return std::string(text);
  json::Object object;
  if (!element.get(object) && !object["content"].get(text)) return std::string(text);
  return {};
}

// chat_template: a string, or a list of {"name", "template"}, of which "default" or else the first is meant.
Result<std::optional<std::string>> TemplateText(json::Object config, const std::string& where) {
  if (!json::Has(config, "chat_template")) return std::optional<std::string>();
  std::string_view text;
  if (!config["chat_template"].get(text)) return std::optional(std::string(text));
  DT_ASSIGN_OR_RETURN(const json::Array list, json::GetArray(config, "chat_template", where));
  std::optional<std::string> chosen;
  for (const json::Element element : list) {
    DT_ASSIGN_OR_RETURN(const json::Object item, json::AsObject(element, StrCat(where, ": chat_template")));
    DT_ASSIGN_OR_RETURN(const std::string name, json::GetString(item, "name", StrCat(where, ": chat_template")));
    DT_ASSIGN_OR_RETURN(std::string source, json::GetString(item, "template", StrCat(where, ": chat_template")));
    if (!chosen || name == "default") chosen = std::move(source);
  }
  return chosen;
}
}  // namespace

Result<ChatFiles> LoadChatFiles(const std::string& tokenizer) {
  ChatFiles files;
  std::string name;
  DT_ASSIGN_OR_RETURN(std::optional<std::string> source, ReadFirst(Places(tokenizer, "chat_template.jinja"), &files, &name));
  std::string config_name;
  DT_ASSIGN_OR_RETURN(const std::optional<std::string> config, ReadFirst(Places(tokenizer, "tokenizer_config.json"), &files, &config_name));
  if (config) {
    json::Document document;
    DT_RETURN_IF_ERROR(json::Parse(*config, config_name, &document));
    DT_ASSIGN_OR_RETURN(const json::Object object, json::AsObject(document.root, config_name));
    files.bos_token = TokenText(object, "bos_token");
    files.eos_token = TokenText(object, "eos_token");
    if (!source) {
      name = config_name;
      DT_ASSIGN_OR_RETURN(source, TemplateText(object, config_name));
    }
  }
  if (source) {
    DT_ASSIGN_OR_RETURN(files.chat_template, ChatTemplate::Parse(*source, name));
  }
  return files;
}

Result<ChatTemplate> TakeChatTemplate(ChatFiles* files) {
  if (files->chat_template) return std::move(*files->chat_template);
  std::string list;
  for (const std::string& file : files->looked_for) list += StrCat("\n  ", file);
  return NotFound("the tokenizer has no chat template. These files were looked for:", list,
                  "\nPut the model's chat_template.jinja there, or leave out --chat to continue plain text.");
}

}  // namespace dovetail
