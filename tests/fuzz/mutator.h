// Random mutations of the inputs of a corpus: of their bytes, and of what zip archives, JSON and .safetensors headers hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

#include "json_mutation.h"
#include "zip.h"

namespace dovetail::fuzz {

constexpr size_t kMaxInput = size_t{1} << 20;

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<Bytes>& corpus) : random_(seed), corpus_(corpus) {}

  Bytes Next() {
    Bytes input = corpus_.empty() ? Bytes{} : corpus_[Below(corpus_.size())];
    // Mostly few changes: an input with many is refused at its first field.
    const size_t changes = size_t{1} << Below(5);
    if (Below(8) == 0 || !ChangeInside(input, changes))
      for (size_t i = 0; i < changes; ++i) Change(input);
    if (input.size() > kMaxInput && (corpus_.empty() || Below(2) == 0)) input.resize(kMaxInput);
    return input;
  }

 private:
  size_t Below(size_t limit) { return limit == 0 ? 0 : static_cast<size_t>(random_() % limit); }

  // Changes what a container holds and keeps the container whole. False for an input that is none.
  bool ChangeInside(Bytes& input, size_t changes) {
    if (auto members = Unzip(input); members && !members->empty()) {
      ChangeMembers(*members, changes);
      input = Zip(*members);
      return true;
    }
    uint64_t length = 0;  // of a .safetensors header
    if (input.size() > 8) std::memcpy(&length, input.data(), 8);
    if (length > 0 && length <= input.size() - 8 && input[8] == '{') {
      Bytes header(input.begin() + 8, input.begin() + 8 + length);
      ChangeText(header, changes);
      input.erase(input.begin() + 8, input.begin() + 8 + length);
      input.insert(input.begin() + 8, header.begin(), header.end());
      length = header.size();
      std::memcpy(input.data(), &length, 8);
      return true;
    }
    if (input.empty() || input[0] != '{') return false;
    ChangeText(input, changes);
    return true;
  }

  void ChangeText(Bytes& text, size_t changes) {
    const bool any_bytes = Below(8) == 0;  // mostly no JSON any more then
    for (size_t i = 0; i < changes; ++i) any_bytes ? Change(text) : MutateJson(text, random_);
  }

  void ChangeMembers(std::vector<ZipMember>& members, size_t changes) {
    // The one of two texts that is larger, which is a model rather than a list of its tensors.
    std::vector<size_t> texts;
    for (size_t i = 0; i < members.size(); ++i)
      if (!members[i].data.empty() && members[i].data[0] == '{') texts.push_back(i);
    const bool text = !texts.empty() && Below(8) != 0;
    size_t chosen = Below(members.size());
    if (text) {
      const size_t a = texts[Below(texts.size())], b = texts[Below(texts.size())];
      chosen = members[a].data.size() > members[b].data.size() ? a : b;
    }
    ZipMember& m = members[chosen];
    if (text) return ChangeText(m.data, changes);
    switch (Below(8)) {
      case 0: std::swap(m.data, members[Below(members.size())].data); break;
      case 1: std::swap(m, members.back()); members.pop_back(); break;
      case 2: {
        const ZipMember copy = m;
        members.push_back(copy);
        break;
      }
      case 3: {
        Bytes name(m.name.begin(), m.name.end());
        Change(name);
        m.name.assign(name.begin(), name.end());
        m.name.resize(std::min<size_t>(m.name.size(), UINT16_MAX));
        break;
      }
      default:
        for (size_t i = 0; i < changes; ++i) Change(m.data);
    }
  }

  void Change(Bytes& input) {
    if (input.empty()) {
      input.resize(1 + Below(64));
      for (uint8_t& b : input) b = static_cast<uint8_t>(random_());
      return;
    }
    const size_t at = Below(input.size());
    const size_t run = std::min(1 + Below(size_t{1} << Below(9)), input.size() - at);
    switch (Below(10)) {
      case 0: input[at] ^= static_cast<uint8_t>(1u << Below(8)); break;
      case 1: input[at] = static_cast<uint8_t>(random_()); break;
      case 2: PutInteger(input, at); break;
      case 3: input.erase(input.begin() + at, input.begin() + at + run); break;
      case 4: {
        const Bytes copy(input.begin() + at, input.begin() + at + run);
        input.insert(input.begin() + Below(input.size() + 1), copy.begin(), copy.end());
        break;
      }
      case 5: input.resize(at); break;
      case 6: Splice(input, at); break;
      case 7: PutDigits(input, at); break;
      case 8: std::fill_n(input.begin() + at, run, Below(2) == 0 ? uint8_t{0} : uint8_t{0xff}); break;
      default: std::copy_n(Bytes(input.begin() + at, input.begin() + at + run).begin(), run, input.begin() + Below(input.size() - run + 1));
    }
  }

  // A little-endian integer at the edge of some range, where a size or an offset may be.
  void PutInteger(Bytes& input, size_t at) {
    static constexpr uint64_t kValues[] = {0, 1, 4, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
                                           0xfffffffc, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff};
    uint64_t value = kValues[Below(std::size(kValues))];
    if (Below(4) == 0) value = Below(input.size() + 16);
    const size_t width = std::min(size_t{1} << Below(4), input.size() - at);
    std::memcpy(input.data() + at, &value, width);
  }

  // Another number in place of the next decimal one: for text.
  void PutDigits(Bytes& input, size_t at) {
    static constexpr std::string_view kNumbers[] = {"0", "-1", "1", "9223372036854775807", "-9223372036854775808", "4294967296", "1e400", ""};
    const auto is_digit = [](uint8_t c) { return c >= '0' && c <= '9'; };
    const auto begin = std::find_if(input.begin() + at, input.end(), is_digit);
    const auto end = std::find_if_not(begin, input.end(), is_digit);
    const std::string_view number = kNumbers[Below(std::size(kNumbers))];
    const size_t offset = begin - input.begin();
    input.erase(begin, end);
    input.insert(input.begin() + offset, number.begin(), number.end());
  }

  void Splice(Bytes& input, size_t at) {
    if (corpus_.empty()) return;
    const Bytes& other = corpus_[Below(corpus_.size())];
    if (other.empty()) return;
    const size_t from = Below(other.size());
    const size_t count = std::min(1 + Below(size_t{1} << Below(12)), other.size() - from);
    if (Below(2) == 0) {
      input.insert(input.begin() + at, other.begin() + from, other.begin() + from + count);
    } else {
      std::copy_n(other.begin() + from, std::min(count, input.size() - at), input.begin() + at);
    }
  }

  std::mt19937_64 random_;
  const std::vector<Bytes>& corpus_;
};

}  // namespace dovetail::fuzz
