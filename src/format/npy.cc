#include "format/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "format/array_checks.h"

namespace dovetail {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;

struct Descr {
  std::string_view text;
  DType dtype;
};
// As NumPy writes them; '|' stands for "no byte order".
constexpr Descr kDescrs[] = {{"|b1", DType::kBool}, {"|u1", DType::kU8},  {"|i1", DType::kI8},  {"<i2", DType::kI16},
                             {"<i4", DType::kI32},  {"<i8", DType::kI64}, {"<u2", DType::kU16}, {"<u4", DType::kU32},
                             {"<f2", DType::kF16},  {"<f4", DType::kF32}, {"<f8", DType::kF64}, {"<c8", DType::kC64}};

Result<DType> ParseDescr(std::string_view text, const std::string& where) {
  for (const Descr& d : kDescrs)
    if (d.text == text || (text.size() == 3 && text.substr(1) == d.text.substr(1) && (text[0] == '=' || ByteSize(d.dtype) == 1))) return d.dtype;
  const std::string shown(text.substr(0, 32));
  if (text.starts_with('>')) return Unsupported(where, " is big-endian ('", shown, "'); a.astype(a.dtype.newbyteorder('<')) converts it");
  if (text.ends_with('O')) return Unsupported(where, " holds Python objects ('", shown, "'), which are never loaded");
  if (text.find('V') != std::string_view::npos)
    return Unsupported(where, " has an element type that NumPy does not know ('", shown, "'); bf16 and the like can be stored in .safetensors");
  return Unsupported(where, " has the element type '", shown, "'; Dovetail reads bool, 8 to 64 bit int, 8 to 32 bit uint, float16 to 64 and complex64");
}

// The few tokens of Python that the dictionary is made of. `where` starts the messages.
class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Status Wrong(std::string_view what) const { return Corrupt(where_, " has a damaged .npy header: ", what, " at byte ", at_, " of its dictionary"); }

  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Status Expect(char c) { return Take(c) ? OkStatus() : Wrong(StrCat("no '", c, "'")); }
  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }

  Result<std::string_view> String() {
    SkipSpace();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return Wrong("no string");
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return Wrong("an unfinished string");
    const std::string_view s = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return s;
  }
  Result<bool> Bool() {
    SkipSpace();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>("True", true), {"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    return Wrong("neither True nor False");
  }
  Result<int64_t> Integer() {
    SkipSpace();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return Wrong(error == std::errc::result_out_of_range ? "a size that does not fit in 63 bits" : "no size");
    at_ = static_cast<size_t>(end - text_.data());
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote it
    return value;
  }
  Result<std::vector<int64_t>> Tuple() {
    DT_RETURN_IF_ERROR(Expect('('));
    std::vector<int64_t> sizes;
    while (!Take(')')) {
      if (!sizes.empty()) {
        DT_RETURN_IF_ERROR(Expect(','));
        if (Take(')')) break;
      }
      DT_ASSIGN_OR_RETURN(const int64_t size, Integer());
      sizes.push_back(size);
    }
    return sizes;
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
};

// Copies an array whose first dimension varies fastest into row-major order.
void CopyFromFortranOrder(const std::byte* from, std::byte* to, std::span<const int64_t> shape, size_t element) {
  std::vector<size_t> stride(shape.size(), element), index(shape.size(), 0);
  size_t count = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    stride[i] = element * count;
    count *= static_cast<size_t>(shape[i]);
  }
  for (size_t n = 0, source = 0; n < count; ++n) {
    std::memcpy(to + n * element, from + source, element);
    for (size_t i = shape.size(); i-- > 0;) {
      source += stride[i];
      if (++index[i] < static_cast<size_t>(shape[i])) break;
      source -= stride[i] * index[i];
      index[i] = 0;
    }
  }
}

}  // namespace

Result<NpyHeader> ParseNpyHeader(Bytes bytes, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) return Corrupt(where, " is no .npy: it does not start with \\x93NUMPY");
  const size_t prefix = kMagic.size() + 2, major = bytes.size() < prefix ? 0 : static_cast<size_t>(bytes[kMagic.size()]);
  const size_t width = major == 1 ? 2 : 4;
  if (bytes.size() < prefix + width) return Corrupt(where, " is truncated: its .npy header is incomplete");
  if (major < 1 || major > 3) return Unsupported(where, " is of .npy version ", major, "; versions 1 to 3 are known");
  uint32_t length = 0;  // little-endian, as is every machine this runs on
  std::memcpy(&length, bytes.data() + prefix, width);
  NpyHeader header;
  header.size = prefix + width + length;
  if (header.size > bytes.size()) return Corrupt(where, " is truncated: its .npy header of ", length, " bytes reaches past its end");

  Reader reader(text.substr(prefix + width, length), where);
  std::optional<std::string_view> descr;
  bool has_order = false, has_shape = false;
  DT_RETURN_IF_ERROR(reader.Expect('{'));
  while (!reader.Take('}')) {
    DT_ASSIGN_OR_RETURN(const std::string_view key, reader.String());
    DT_RETURN_IF_ERROR(reader.Expect(':'));
    if (key == "descr" && !descr) {
      if (reader.Take('[') || reader.Take('('))
        return Unsupported(where, " has elements that are structures or arrays themselves; save each field as an array of its own");
      DT_ASSIGN_OR_RETURN(descr, reader.String());
    } else if (key == "fortran_order" && !has_order) {
      DT_ASSIGN_OR_RETURN(header.fortran_order, reader.Bool());
      has_order = true;
    } else if (key == "shape" && !has_shape) {
      DT_ASSIGN_OR_RETURN(header.shape, reader.Tuple());
      has_shape = true;
    } else {
      return reader.Wrong(StrCat("unexpected key '", key.substr(0, 32), "'"));
    }
    if (!reader.Take(',')) {
      DT_RETURN_IF_ERROR(reader.Expect('}'));
      break;
    }
  }
  if (!reader.AtEnd()) return reader.Wrong("more text");
  if (!descr || !has_order || !has_shape) return reader.Wrong("no descr, fortran_order or shape");
  DT_ASSIGN_OR_RETURN(header.dtype, ParseDescr(*descr, where));
  return header;
}

Result<NamedArray> ParseNpy(Bytes bytes, std::string name, const std::string& where) {
  DT_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(bytes, where));
  const Bytes data = bytes.subspan(header.size);
  DT_ASSIGN_OR_RETURN(const uint64_t needed, ArrayBytes(header.dtype, header.shape, where));
  if (needed != data.size()) return Corrupt(where, " needs ", needed, " bytes for its shape, and ", data.size(), " follow its header");
  DT_RETURN_IF_ERROR(CheckBools(header.dtype, data, where));
  NamedArray array{std::move(name), header.dtype, header.shape, {}};
  if (header.fortran_order && needed > 0 && header.shape.size() > 1) {
    array.data.resize(data.size());
    CopyFromFortranOrder(data.data(), array.data.data(), header.shape, ByteSize(header.dtype));
  } else {
    array.data.assign(data.begin(), data.end());
  }
  return array;
}

Result<std::string> PrintNpyHeader(DType dtype, std::span<const int64_t> shape, const std::string& where) {
  const Descr* descr = std::find_if(std::begin(kDescrs), std::end(kDescrs), [&](const Descr& d) { return d.dtype == dtype; });
  if (descr == std::end(kDescrs)) return InvalidArgument(where, " is of type ", Name(dtype), ", which NumPy does not have; convert it to f32 first");
  std::string text = StrCat("{'descr': '", descr->text, "', 'fortran_order': False, 'shape': (");
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  text += shape.size() == 1 ? ",), }" : "), }";
  const size_t prefix = kMagic.size() + 4;
  const size_t total = (prefix + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  if (total - prefix > UINT16_MAX) return InvalidArgument(where, " has ", shape.size(), " dimensions, too many for an .npy header");
  text.resize(total - prefix - 1, ' ');
  text += '\n';
  const uint16_t length = static_cast<uint16_t>(text.size());
  std::string header(kMagic);
  header += {'\1', '\0', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return header + text;
}

}  // namespace dovetail
