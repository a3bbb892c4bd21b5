// Reading tokenizer.json into a Tokenizer.
#include <algorithm>
#include <limits>

#include "llm/tokenizer.h"

namespace dovetail {

Result<std::unique_ptr<Tokenizer>> Tokenizer::Parse(std::string_view text, const std::string& name) {
  json::Document document;
  DT_RETURN_IF_ERROR(json::Parse(text, name, &document));
  DT_ASSIGN_OR_RETURN(const json::Object root, json::AsObject(document.root, name));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  DT_RETURN_IF_ERROR(tokenizer->ParseModel(root, name));
  if (json::Has(root, "normalizer")) {
    DT_ASSIGN_OR_RETURN(const json::Object part, json::GetObject(root, "normalizer", name));
    DT_ASSIGN_OR_RETURN(tokenizer->normalizer_, Normalizer::Parse(part, StrCat(name, ": normalizer")));
  }
  if (json::Has(root, "pre_tokenizer")) {
    DT_ASSIGN_OR_RETURN(const json::Object part, json::GetObject(root, "pre_tokenizer", name));
    DT_ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_, PreTokenizer::Parse(part, StrCat(name, ": pre_tokenizer")));
  }
  if (json::Has(root, "decoder")) {
    DT_ASSIGN_OR_RETURN(const json::Object part, json::GetObject(root, "decoder", name));
    DT_ASSIGN_OR_RETURN(tokenizer->decoder_, DecoderSteps::Parse(part, StrCat(name, ": decoder")));
  }
  if (json::Has(root, "post_processor")) {
    DT_ASSIGN_OR_RETURN(const json::Object part, json::GetObject(root, "post_processor", name));
    DT_RETURN_IF_ERROR(tokenizer->ParsePostProcessor(part, StrCat(name, ": post_processor")));
  }
  DT_RETURN_IF_ERROR(tokenizer->ParseAdded(root, name));
  return tokenizer;
}

Status Tokenizer::ParseModel(json::Object root, const std::string& name) {
  const std::string where = StrCat(name, ": model");
  if (!json::Has(root, "model") && json::Has(root, "tokenizer_class"))
    return InvalidArgument(name, " is a tokenizer_config.json, which has no vocabulary; give the tokenizer.json that comes with it");
  DT_ASSIGN_OR_RETURN(const json::Object model, json::GetObject(root, "model", name));
  DT_ASSIGN_OR_RETURN(const std::string type, json::GetString(model, "type", json::Has(model, "merges") ? "BPE" : "", where));
  if (type != "BPE") return Unsupported(where, ": the model '", type, "' is not supported, only BPE is");
  double dropout = 0;
  if (json::Has(model, "dropout") && !model["dropout"].get(dropout) && dropout != 0) {
    return Unsupported(where, ": 'dropout' would make the tokens random: set it to null");
  }
  DT_ASSIGN_OR_RETURN(const json::Object vocab, json::GetObject(model, "vocab", where));
  for (const auto& [token, value] : vocab) {
    int64_t id;
    if (value.get(id)) return Corrupt(where, ".vocab: '", token, "' must have an integer");
    Status status = model_.AddToken(std::string(token), id);
    if (!status.ok()) return std::move(status).While(StrCat("reading ", where, ".vocab"));
  }
  BpeModel::Options options;
  DT_ASSIGN_OR_RETURN(options.ignore_merges, json::GetBool(model, "ignore_merges", false, where));
  DT_ASSIGN_OR_RETURN(options.byte_fallback, json::GetBool(model, "byte_fallback", false, where));
  DT_ASSIGN_OR_RETURN(options.fuse_unk, json::GetBool(model, "fuse_unk", false, where));
  DT_ASSIGN_OR_RETURN(options.continuing_prefix, json::GetString(model, "continuing_subword_prefix", "", where));
  DT_ASSIGN_OR_RETURN(options.end_suffix, json::GetString(model, "end_of_word_suffix", "", where));
  if (json::Has(model, "unk_token")) {
    DT_ASSIGN_OR_RETURN(const std::string unk, json::GetString(model, "unk_token", where));
    options.unk = model_.Id(unk);
    if (!options.unk) return Corrupt(where, ": the unk_token '", unk, "' is not in the vocabulary");
  }
  model_.set_options(std::move(options));

  DT_ASSIGN_OR_RETURN(const json::Array merges, json::GetArray(model, "merges", where));
  size_t i = 0;
  for (const json::Element merge : merges) {
    const std::string line = StrCat(where, ".merges[", i++, "]");
    std::string_view left, right, joined;
    json::Array pair;
    if (!merge.get(joined)) {
      if (joined.starts_with("#version")) continue;
      const size_t space = joined.find(' ');
      if (space == std::string_view::npos || joined.find(' ', space + 1) != std::string_view::npos) {
        return Corrupt(line, " must be two tokens with one space between them");
      }
      left = joined.substr(0, space);
      right = joined.substr(space + 1);
    } else if (merge.get(pair) || pair.size() != 2 || pair.at(0).get(left) || pair.at(1).get(right)) {
      return Corrupt(line, " must be a string or a pair of strings");
    }
    Status status = model_.AddMerge(left, right);
    if (!status.ok()) return std::move(status).While(StrCat("reading ", line));
  }
  max_id_ = model_.max_id();
  return OkStatus();
}

Status Tokenizer::ParseAdded(json::Object root, const std::string& name) {
  if (!json::Has(root, "added_tokens")) return OkStatus();
  DT_ASSIGN_OR_RETURN(const json::Array array, json::GetArray(root, "added_tokens", name));
  size_t i = 0;
  for (const json::Element element : array) {
    const std::string where = StrCat(name, ": added_tokens[", i++, "]");
    DT_ASSIGN_OR_RETURN(const json::Object object, json::AsObject(element, where));
    AddedToken token;
    DT_ASSIGN_OR_RETURN(token.content, json::GetString(object, "content", where));
    DT_ASSIGN_OR_RETURN(token.single_word, json::GetBool(object, "single_word", false, where));
    DT_ASSIGN_OR_RETURN(token.lstrip, json::GetBool(object, "lstrip", false, where));
    DT_ASSIGN_OR_RETURN(token.rstrip, json::GetBool(object, "rstrip", false, where));
    DT_ASSIGN_OR_RETURN(token.special, json::GetBool(object, "special", false, where));
    DT_ASSIGN_OR_RETURN(token.normalized, json::GetBool(object, "normalized", !token.special, where));
    DT_ASSIGN_OR_RETURN(const int64_t id, json::GetInt(object, "id", where));
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) return Corrupt(where, ": the id ", id, " is out of range");
    if (token.content.empty() || added_by_text_.contains(token.content)) continue;
    // A token that the model knows keeps the model's id.
    token.id = model_.Id(token.content).value_or(static_cast<int32_t>(id));
    max_id_ = std::max<int64_t>(max_id_, token.id);
    const AddedToken* kept = &added_.emplace_back(std::move(token));
    added_by_text_[kept->content] = kept;
    added_by_id_[kept->id] = kept;
    if (kept->normalized) {
      std::string text = kept->content;
      if (normalizer_) {
        DT_ASSIGN_OR_RETURN(text, normalizer_->Apply(std::move(text)));
      }
      normalized_finder_.Add(std::move(text), kept);
    } else {
      raw_finder_.Add(kept->content, kept);
    }
  }
  return OkStatus();
}

Status Tokenizer::ParsePostProcessor(json::Object object, const std::string& where) {
  DT_ASSIGN_OR_RETURN(const std::string type, json::GetString(object, "type", where));
  if (type == "ByteLevel") return OkStatus();  // it only moves offsets
  if (type == "Sequence") {
    DT_ASSIGN_OR_RETURN(const json::Array parts, json::GetArray(object, "processors", where));
    size_t i = 0;
    for (const json::Element part : parts) {
      const std::string name = StrCat(where, ".processors[", i++, "]");
      DT_ASSIGN_OR_RETURN(const json::Object child, json::AsObject(part, name));
      DT_RETURN_IF_ERROR(ParsePostProcessor(child, name));
    }
    return OkStatus();
  }
  std::vector<int64_t> before, after;
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    for (const auto& [key, ids] : {std::pair("cls", &before), std::pair("sep", &after)}) {
      DT_ASSIGN_OR_RETURN(const json::Array pair, json::GetArray(object, key, where));
      int64_t id;
      if (pair.at(1).get(id)) return Corrupt(where, ": '", key, "' must be a token and its id");
      ids->push_back(id);
    }
  } else if (type == "TemplateProcessing") {
    DT_ASSIGN_OR_RETURN(const json::Array single, json::GetArray(object, "single", where));
    DT_ASSIGN_OR_RETURN(const json::Object specials, json::GetObject(object, "special_tokens", where));
    bool seen = false;
    for (const json::Element element : single) {
      DT_ASSIGN_OR_RETURN(const json::Object item, json::AsObject(element, StrCat(where, ".single")));
      if (json::Has(item, "Sequence")) {
        if (seen) return Unsupported(where, ": the template holds the text twice");
        seen = true;
        continue;
      }
      DT_ASSIGN_OR_RETURN(const json::Object token, json::GetObject(item, "SpecialToken", StrCat(where, ".single")));
      DT_ASSIGN_OR_RETURN(const std::string id, json::GetString(token, "id", StrCat(where, ".single")));
      DT_ASSIGN_OR_RETURN(const json::Object special, json::GetObject(specials, id, StrCat(where, ".special_tokens")));
      DT_ASSIGN_OR_RETURN(const json::Array ids, json::GetArray(special, "ids", StrCat(where, ".special_tokens")));
      for (const json::Element value : ids) {
        int64_t number;
        if (value.get(number)) return Corrupt(where, ".special_tokens: 'ids' must be integers");
        (seen ? after : before).push_back(number);
      }
    }
    if (!seen) return Unsupported(where, ": the template holds no text");
  } else {
    return Unsupported(where, ": the post-processor '", type,
                       "' is not supported (TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing and Sequence are)");
  }
  prefix_.insert(prefix_.begin(), before.begin(), before.end());  // a later processor goes around the earlier ones
  suffix_.insert(suffix_.end(), after.begin(), after.end());
  return OkStatus();
}

}  // namespace dovetail
