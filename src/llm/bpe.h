// The BPE model of tokenizer.json: turns one word into token ids by merging neighbours, the earliest merge of the list first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace dovetail {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};
template <class T>
using StringMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

class BpeModel {
 public:
  // The fields of the model that change how a word is read; see the format of Hugging Face's tokenizers.
  struct Options {
    bool ignore_merges = false;  // a word that is in the vocabulary is one token
    bool byte_fallback = false;  // unknown characters become the tokens <0xNN> of their bytes
    bool fuse_unk = false;       // several unknown characters in a row are one unknown token
    std::optional<int32_t> unk;  // without it unknown characters are dropped
    std::string continuing_prefix, end_suffix;
  };

  BpeModel() = default;
  BpeModel(BpeModel&&) = default;
  BpeModel& operator=(BpeModel&&) = default;

  // Fails when the id is negative or the token is there already.
  Status AddToken(std::string token, int64_t id);
  // Merges are given in order of priority, after all tokens; fails when a part or the whole is no token.
  Status AddMerge(std::string_view left, std::string_view right);
  void set_options(Options options) { options_ = std::move(options); }

  // Appends the ids of `word`, which must be valid UTF-8. Not safe for concurrent calls: words are cached.
  void Encode(std::string_view word, std::vector<int64_t>* ids);

  std::optional<int32_t> Id(std::string_view token) const;
  // Null for an id that is not in the vocabulary. The string lives as long as the model.
  const std::string* Token(int64_t id) const;
  size_t size() const { return ids_.size(); }
  int32_t max_id() const { return max_id_; }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  std::vector<int32_t> Symbols(std::string_view word) const;
  void MergeAll(std::vector<int32_t>* symbols) const;

  Options options_;
  StringMap<int32_t> ids_;
  std::unordered_map<int32_t, const std::string*> tokens_;
  std::unordered_map<uint64_t, Merge> merges_;
  uint32_t rank_ = 0;
  int32_t max_id_ = -1;
  StringMap<std::vector<int32_t>> cache_;
};

// "<0xNN>" for a byte, and back.
std::string ByteToken(unsigned char byte);
std::optional<unsigned char> TokenByte(std::string_view token);

}  // namespace dovetail
