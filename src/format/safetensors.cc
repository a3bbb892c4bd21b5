// .safetensors (https://huggingface.co/docs/safetensors): u64 length of the header, a JSON object from names to dtype, shape and
// [begin, end) in the data that follow, then the data, which tensors fill without holes or overlaps.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "format/array_checks.h"
#include "format/arrays.h"

namespace dovetail {
namespace {

using Json = nlohmann::json;

constexpr size_t kPrefix = 8, kMaxHeader = 100'000'000;  // the limit of the format's own library

struct TypeName {
  std::string_view text;
  DType dtype;
};
constexpr TypeName kTypeNames[] = {{"BOOL", DType::kBool}, {"U8", DType::kU8},   {"I8", DType::kI8},     {"I16", DType::kI16}, {"I32", DType::kI32},
                                   {"I64", DType::kI64},   {"U16", DType::kU16}, {"U32", DType::kU32},   {"F16", DType::kF16}, {"BF16", DType::kBF16},
                                   {"F32", DType::kF32},   {"F64", DType::kF64}, {"C64", DType::kC64}};

struct Entry {
  std::string name, dtype;
  std::vector<int64_t> shape, offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Fills `entries` from the parser's events, so that a hostile header is never a tree in memory. Returning false stops the parser.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}

  std::vector<Entry> entries;
  Status status;

  bool start_object(size_t) override {
    if (depth_ == 2) return Wrong("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1 && !in_metadata_) {
      const Entry& e = entries.back();
      if (!e.has_dtype || !e.has_shape || !e.has_offsets) return Fail(StrCat(Where(), " has no dtype, no shape or no data_offsets in the header"));
    }
    return true;
  }
  bool key(std::string& name) override {
    field_ = depth_ == 2 ? name : "";
    if (depth_ == 2) return true;
    if (!names_.insert(name).second) return Fail(StrCat(where_, ": two arrays have the name '", name, "'"));
    in_metadata_ = name == "__metadata__";
    if (!in_metadata_) entries.push_back(Entry{.name = name, .dtype = {}, .shape = {}, .offsets = {}});
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ != 2 || in_array_ || field_ != "dtype" || entries.back().has_dtype) return Wrong("a string");
    entries.back().dtype = text;
    entries.back().has_dtype = true;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_) return Wrong("an array");
    Entry& e = entries.back();
    bool& has = field_ == "shape" ? e.has_shape : e.has_offsets;
    if ((field_ != "shape" && field_ != "data_offsets") || has) return Wrong("an array");
    in_array_ = field_ == "shape" ? &e.shape : &e.offsets;
    has = true;
    return true;
  }
  bool end_array() override {
    in_array_ = nullptr;
    return true;
  }
  bool number_unsigned(uint64_t n) override {
    if (!in_array_ || n > INT64_MAX) return Wrong("a number");
    in_array_->push_back(static_cast<int64_t>(n));
    return true;
  }
  bool number_integer(int64_t) override { return Wrong("a negative number"); }
  bool number_float(double, const std::string&) override { return Wrong("a number that is no integer"); }
  bool null() override { return Wrong("null"); }
  bool boolean(bool) override { return Wrong("a bool"); }
  bool binary(Json::binary_t&) override { return Wrong("binary data"); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(StrCat(where_, ": its header is not JSON, at byte ", at));
  }

 private:
  bool Fail(std::string message) {
    if (status.ok()) status = Corrupt(message);
    return false;
  }
  std::string Where() const {
    if (in_metadata_) return StrCat(where_, ": __metadata__");
    return entries.empty() ? where_ : StrCat(where_, ": array '", entries.back().name, "'");
  }
  bool Wrong(std::string_view what) {
    const std::string field = field_.empty() ? "" : StrCat(" as '", field_.substr(0, 32), "'");
    return Fail(StrCat(Where(), " has ", what, field, " in the header, which the format does not allow"));
  }

  const std::string& where_;
  std::unordered_set<std::string> names_;
  std::string field_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::vector<int64_t>* in_array_ = nullptr;
};

Result<DType> FindType(std::string_view text, const std::string& where) {
  for (const TypeName& t : kTypeNames)
    if (t.text == text) return t.dtype;
  return Unsupported(where, " has the element type '", text.substr(0, 32), "', which Dovetail does not have");
}

}  // namespace

Result<std::vector<NamedArray>> ParseSafetensors(std::span<const std::byte> bytes, const std::string& name) {
  const std::string file = StrCat("'", name, "'");
  uint64_t length = 0;
  if (bytes.size() < kPrefix) return Corrupt(file, " is no .safetensors file: it has ", bytes.size(), " bytes");
  std::memcpy(&length, bytes.data(), kPrefix);
  if (length > kMaxHeader) return Corrupt(file, " is no .safetensors file, or damaged: a header of ", length, " bytes is longer than the format allows");
  if (length > bytes.size() - kPrefix) return Corrupt(file, " is truncated: its header of ", length, " bytes reaches past its end");
  const char* text = reinterpret_cast<const char*>(bytes.data()) + kPrefix;
  HeaderReader reader(file);
  if (length == 0 || text[0] != '{') return Corrupt(file, " is no .safetensors file: its header is no JSON object");
  if (!Json::sax_parse(text, text + length, &reader)) return std::move(reader.status);

  const std::span<const std::byte> data = bytes.subspan(kPrefix + length);
  std::vector<const Entry*> by_offset;
  std::vector<NamedArray> arrays;
  for (const Entry& e : reader.entries) {
    const std::string where = StrCat(file, ": array '", e.name, "'");
    DT_ASSIGN_OR_RETURN(const DType dtype, FindType(e.dtype, where));
    DT_ASSIGN_OR_RETURN(const uint64_t needed, ArrayBytes(dtype, e.shape, where));
    if (e.offsets.size() != 2 || e.offsets[0] > e.offsets[1]) return Corrupt(where, " has data_offsets that are no [begin, end]");
    const uint64_t begin = static_cast<uint64_t>(e.offsets[0]), end = static_cast<uint64_t>(e.offsets[1]);
    if (end > data.size()) return Corrupt(where, " ends at byte ", end, " of the data, of which there are ", data.size(), "; the file is truncated or damaged");
    if (end - begin != needed) return Corrupt(where, " needs ", needed, " bytes for its shape, and has ", end - begin);
    by_offset.push_back(&e);
    arrays.push_back({e.name, dtype, e.shape, {}});
  }
  std::stable_sort(by_offset.begin(), by_offset.end(), [](const Entry* a, const Entry* b) { return a->offsets < b->offsets; });
  int64_t next = 0;
  for (const Entry* e : by_offset) {
    if (e->offsets[0] < next) return Corrupt(file, ": array '", e->name, "' overlaps the one before it, at byte ", e->offsets[0], " of the data");
    if (e->offsets[0] > next) return Corrupt(file, ": bytes ", next, " to ", e->offsets[0], " of the data, before array '", e->name, "', belong to no array");
    next = e->offsets[1];
  }
  if (const uint64_t used = static_cast<uint64_t>(next); used != data.size())
    return Corrupt(file, ": the last ", data.size() - used, " bytes of the data belong to no array");
  // Only now, when the arrays' sizes are known to add up to the file's.
  for (size_t i = 0; i < arrays.size(); ++i) {
    const std::vector<int64_t>& at = reader.entries[i].offsets;
    const auto part = data.subspan(static_cast<size_t>(at[0]), static_cast<size_t>(at[1] - at[0]));
    DT_RETURN_IF_ERROR(CheckBools(arrays[i].dtype, part, StrCat(file, ": array '", arrays[i].name, "'")));
    arrays[i].data.assign(part.begin(), part.end());
  }
  return arrays;
}

}  // namespace dovetail
