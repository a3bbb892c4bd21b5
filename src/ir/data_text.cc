#include "ir/data_text.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace dovetail::text {
namespace {

constexpr int64_t kPrintedElements = 32;  // longer data is `external`

template <class T>
std::string Elements(const std::byte* data, int64_t n, std::string (*text)(T)) {
  std::string s = "[";
  for (int64_t i = 0; i < n; ++i) {
    T v;
    std::memcpy(&v, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    if (i) s += ',';
    s += text(v);
  }
  return s + "]";
}

std::string FloatText(float v) {
  // Shortest text of the float, with a dot.
  std::string s = FormatDouble(v);
  for (int precision = 1; precision <= 9; ++precision) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.*g", precision, static_cast<double>(v));
    if (std::strtof(buffer, nullptr) == v) {
      s = buffer;
      if (s.find_first_of(".en") == std::string::npos) s += ".0";
      break;
    }
  }
  return s;
}

}  // namespace

std::string DataText(const Constant& c) {
  if (!c.data_known) return "external";
  const int64_t n = c.type.shape.numel().value();
  if (c.nbytes() > (size_t{1} << 20)) return "external";
  std::vector<std::byte> bytes(c.nbytes());
  c.CopyTo(bytes.data());
  bool zero = n > 0;
  for (std::byte b : bytes) zero = zero && b == std::byte{0};
  if (zero && n > 1) return "zeros";
  if (n > kPrintedElements) return "external";
  switch (c.type.dtype) {
    case DType::kF32: return Elements<float>(bytes.data(), n, FloatText);
    case DType::kF64: return Elements<double>(bytes.data(), n, FormatDouble);
    case DType::kI64: return Elements<int64_t>(bytes.data(), n, [](int64_t v) { return std::to_string(v); });
    case DType::kI32: return Elements<int32_t>(bytes.data(), n, [](int32_t v) { return std::to_string(v); });
    case DType::kI8: return Elements<int8_t>(bytes.data(), n, [](int8_t v) { return std::to_string(v); });
    case DType::kI16: return Elements<int16_t>(bytes.data(), n, [](int16_t v) { return std::to_string(v); });
    case DType::kU8: return Elements<uint8_t>(bytes.data(), n, [](uint8_t v) { return std::to_string(v); });
    case DType::kU16: return Elements<uint16_t>(bytes.data(), n, [](uint16_t v) { return std::to_string(v); });
    case DType::kU32: return Elements<uint32_t>(bytes.data(), n, [](uint32_t v) { return std::to_string(v); });
    case DType::kF16: return Elements<uint16_t>(bytes.data(), n, [](uint16_t v) { return FloatText(HalfToFloat(v)); });
    case DType::kBF16: return Elements<uint16_t>(bytes.data(), n, [](uint16_t v) { return FloatText(BFloat16ToFloat(v)); });
    case DType::kBool: return Elements<uint8_t>(bytes.data(), n, [](uint8_t v) { return std::string(v ? "true" : "false"); });
    default: return "external";
  }
}

bool PutElement(DType dtype, const Attr& a, std::byte* p) {
  auto put = [p](auto v) {
    std::memcpy(p, &v, sizeof v);
    return true;
  };
  const bool integer = a.is<Dim>() && a.get<Dim>()->is_constant(), number = integer || a.is<double>();
  if (dtype == DType::kBool ? !a.is<bool>() : IsFloat(dtype) ? !number : !integer) return false;
  switch (dtype) {
    case DType::kBool: return put(static_cast<uint8_t>(a.Bool()));
    case DType::kU8: return put(static_cast<uint8_t>(a.Int()));
    case DType::kI8: return put(static_cast<int8_t>(a.Int()));
    case DType::kI16: return put(static_cast<int16_t>(a.Int()));
    case DType::kI32: return put(static_cast<int32_t>(a.Int()));
    case DType::kI64: return put(a.Int());
    case DType::kU16: return put(static_cast<uint16_t>(a.Int()));
    case DType::kU32: return put(static_cast<uint32_t>(a.Int()));
    case DType::kF16: return put(FloatToHalf(static_cast<float>(a.Number())));
    case DType::kBF16: return put(FloatToBFloat16(static_cast<float>(a.Number())));
    case DType::kF32: return put(static_cast<float>(a.Number()));
    case DType::kF64: return put(a.Number());
    default: return false;
  }
}

}  // namespace dovetail::text
