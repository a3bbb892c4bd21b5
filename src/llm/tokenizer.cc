#include "llm/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/mapped_file.h"
#include "llm/utf8.h"

namespace dovetail {

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  std::error_code error;
  const std::string file = std::filesystem::is_directory(path, error) ? (std::filesystem::path(path) / "tokenizer.json").string() : path;
  auto mapped = MappedFile::Open(file);
  if (!mapped.ok()) return std::move(mapped).status().While(StrCat("loading the tokenizer of ", path));
  const auto bytes = mapped.value()->bytes();
  return Parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
}

Result<std::vector<int64_t>> Tokenizer::Encode(std::string_view text, bool add_special_tokens) {
  if (const size_t valid = ValidUtf8Prefix(text); valid != text.size()) {
    return InvalidArgument("the text is not UTF-8 at byte ", valid, ": give it as UTF-8");
  }
  std::vector<int64_t> ids;
  if (add_special_tokens) ids = prefix_;
  for (const TokenFinder::Found& part : raw_finder_.Split(text)) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
    } else {
      DT_RETURN_IF_ERROR(EncodePlain(std::string(text.substr(part.begin, part.end - part.begin)), part.begin == 0, &ids));
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

Status Tokenizer::EncodePlain(std::string text, bool at_start, std::vector<int64_t>* ids) {
  if (normalizer_) {
    DT_ASSIGN_OR_RETURN(text, normalizer_->Apply(std::move(text)));
  }
  for (const TokenFinder::Found& part : normalized_finder_.Split(text)) {
    if (part.token != nullptr) {
      ids->push_back(part.token->id);
      continue;
    }
    std::vector<Piece> pieces;
    pieces.push_back({text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0});
    if (pre_tokenizer_) {
      DT_ASSIGN_OR_RETURN(pieces, pre_tokenizer_->Apply(std::move(pieces)));
    }
    for (const Piece& piece : pieces) model_.Encode(piece.text, ids);
  }
  return OkStatus();
}

Result<std::string> Tokenizer::Decode(std::span<const int64_t> ids, bool skip_special) const {
  Decoder decoder = NewDecoder(skip_special);
  std::string text;
  for (const int64_t id : ids) {
    DT_ASSIGN_OR_RETURN(const std::string piece, decoder.Push(id));
    text += piece;
  }
  return text + decoder.Finish();
}

std::optional<int64_t> Tokenizer::TokenId(std::string_view token) const {
  if (const auto place = added_by_text_.find(token); place != added_by_text_.end()) return place->second->id;
  if (const auto id = model_.Id(token)) return *id;
  return std::nullopt;
}

const std::string* Tokenizer::Token(int64_t id) const {
  if (const auto place = added_by_id_.find(id); place != added_by_id_.end()) return &place->second->content;
  return model_.Token(id);
}

bool Tokenizer::IsSpecial(int64_t id) const {
  const auto place = added_by_id_.find(id);
  return place != added_by_id_.end() && place->second->special;
}

}  // namespace dovetail
