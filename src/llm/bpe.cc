#include "llm/bpe.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "llm/utf8.h"

namespace dovetail {
namespace {
constexpr size_t kCachedWords = 1 << 14, kCachedBytes = 64;

uint64_t Pair(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}
}  // namespace

std::string ByteToken(unsigned char byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return StrCat("<0x", kDigits[byte >> 4], kDigits[byte & 15], ">");
}

std::optional<unsigned char> TokenByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit);
  }
  return static_cast<unsigned char>(value);
}

Status BpeModel::AddToken(std::string token, int64_t id) {
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) return Corrupt("the token '", token, "' has the id ", id);
  const auto [place, added] = ids_.emplace(std::move(token), static_cast<int32_t>(id));
  if (!added) return Corrupt("the token '", place->first, "' is in the vocabulary twice");
  tokens_[static_cast<int32_t>(id)] = &place->first;
  max_id_ = std::max(max_id_, static_cast<int32_t>(id));
  return OkStatus();
}

Status BpeModel::AddMerge(std::string_view left, std::string_view right) {
  const auto a = Id(left), b = Id(right);
  if (!a || !b) return Corrupt("merge ", rank_, " joins '", a ? right : left, "', which is not in the vocabulary");
  std::string_view tail = right;
  if (!options_.continuing_prefix.empty() && tail.starts_with(options_.continuing_prefix)) tail.remove_prefix(options_.continuing_prefix.size());
  const std::string whole = StrCat(left, tail);
  const auto id = Id(whole);
  if (!id) return Corrupt("merge ", rank_, " makes '", whole, "', which is not in the vocabulary");
  merges_[Pair(*a, *b)] = Merge{rank_++, *id};
  return OkStatus();
}

std::optional<int32_t> BpeModel::Id(std::string_view token) const {
  const auto place = ids_.find(token);
  return place == ids_.end() ? std::nullopt : std::optional(place->second);
}

const std::string* BpeModel::Token(int64_t id) const {
  if (id < 0 || id > max_id_) return nullptr;
  const auto place = tokens_.find(static_cast<int32_t>(id));
  return place == tokens_.end() ? nullptr : place->second;
}

std::vector<int32_t> BpeModel::Symbols(std::string_view word) const {
  std::vector<int32_t> symbols;
  int unknown = 0;  // unknown tokens that wait; they come after bytes of byte_fallback, as in the reference
  const auto flush = [&] {
    for (; unknown > 0; --unknown) symbols.push_back(*options_.unk);
  };
  for (size_t at = 0; at < word.size();) {
    const size_t size = ReadUtf8(word, at).size;
    std::string_view character = word.substr(at, size);
    std::string decorated;
    const bool first = at == 0, last = at + size == word.size();
    if ((!first && !options_.continuing_prefix.empty()) || (last && !options_.end_suffix.empty())) {
      decorated = StrCat(first ? std::string() : options_.continuing_prefix, character, last ? options_.end_suffix : std::string());
      character = decorated;
    }
    at += size;
    if (const auto id = Id(character)) {
      flush();
      symbols.push_back(*id);
      continue;
    }
    if (options_.byte_fallback) {
      std::vector<int32_t> bytes;
      for (const char c : character) {
        if (const auto id = Id(ByteToken(static_cast<unsigned char>(c)))) bytes.push_back(*id);
      }
      if (bytes.size() == character.size()) {
        symbols.insert(symbols.end(), bytes.begin(), bytes.end());
        continue;
      }
    }
    if (options_.unk && !(unknown > 0 && options_.fuse_unk)) ++unknown;
  }
  flush();
  return symbols;
}

// A list of neighbours and a queue of the merges possible between them. An entry of the queue may be stale: it counts
// only while the pair at its place still makes the token it was queued for.
void BpeModel::MergeAll(std::vector<int32_t>* symbols) const {
  const size_t n = symbols->size();
  if (n < 2) return;
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  struct Link {
    size_t previous, next;
    bool alive;
  };
  std::vector<Link> links(n);
  for (size_t i = 0; i < n; ++i) links[i] = {i == 0 ? kNone : i - 1, i + 1 == n ? kNone : i + 1, true};
  using Entry = std::tuple<uint32_t, size_t, int32_t>;  // rank, place, token made
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const auto find = [&](size_t place) -> const Merge* {
    const size_t next = links[place].next;
    if (next == kNone) return nullptr;
    const auto merge = merges_.find(Pair((*symbols)[place], (*symbols)[next]));
    return merge == merges_.end() ? nullptr : &merge->second;
  };
  const auto push = [&](size_t place) {
    if (const Merge* merge = find(place)) queue.emplace(merge->rank, place, merge->id);
  };
  for (size_t i = 0; i < n; ++i) push(i);
  while (!queue.empty()) {
    const auto [rank, place, id] = queue.top();
    queue.pop();
    if (!links[place].alive) continue;
    const Merge* merge = find(place);
    if (merge == nullptr || merge->id != id) continue;
    const size_t gone = links[place].next, after = links[gone].next;
    (*symbols)[place] = id;
    links[gone].alive = false;
    links[place].next = after;
    if (after != kNone) links[after].previous = place;
    if (links[place].previous != kNone) push(links[place].previous);
    push(place);
  }
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    if (links[i].alive) (*symbols)[kept++] = (*symbols)[i];
  }
  symbols->resize(kept);
}

void BpeModel::Encode(std::string_view word, std::vector<int64_t>* ids) {
  if (word.empty()) return;
  if (options_.ignore_merges) {
    if (const auto id = Id(word)) {
      ids->push_back(*id);
      return;
    }
  }
  if (const auto cached = cache_.find(word); cached != cache_.end()) {
    ids->insert(ids->end(), cached->second.begin(), cached->second.end());
    return;
  }
  std::vector<int32_t> symbols = Symbols(word);
  MergeAll(&symbols);
  ids->insert(ids->end(), symbols.begin(), symbols.end());
  if (word.size() > kCachedBytes) return;
  if (cache_.size() >= kCachedWords) cache_.clear();
  cache_.emplace(word, std::move(symbols));
}

}  // namespace dovetail
