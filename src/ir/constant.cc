#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ir/graph.h"

namespace dovetail {
namespace {

std::vector<int64_t> RowMajorStrides(const Shape& shape) {
  std::vector<int64_t> strides(shape.rank());
  if (shape.numel() == Dim(0)) return strides;  // the sizes beside a 0 may be of any size
  int64_t n = 1;
  for (size_t i = shape.rank(); i-- > 0;) {
    strides[i] = n;
    n *= shape[i].value();
  }
  return strides;
}

double ReadNumber(DType t, const std::byte* p) {
  auto as = [p]<class T>(T) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  switch (t) {
    case DType::kBool: return as(uint8_t{}) != 0;
    case DType::kU8: return as(uint8_t{});
    case DType::kI8: return as(int8_t{});
    case DType::kI16: return as(int16_t{});
    case DType::kI32: return as(int32_t{});
    case DType::kI64: return static_cast<double>(as(int64_t{}));
    case DType::kU16: return as(uint16_t{});
    case DType::kU32: return as(uint32_t{});
    case DType::kF16: return HalfToFloat(as(uint16_t{}));
    case DType::kBF16: return BFloat16ToFloat(as(uint16_t{}));
    case DType::kF32: return as(float{});
    case DType::kF64: return as(double{});
    default: return 0;
  }
}

void WriteNumber(DType t, double v, std::byte* p) {
  auto put = [p](auto x) { std::memcpy(p, &x, sizeof x); };
  switch (t) {
    case DType::kBool: return put(static_cast<uint8_t>(v != 0));
    case DType::kU8: return put(static_cast<uint8_t>(static_cast<int64_t>(v)));
    case DType::kI8: return put(static_cast<int8_t>(static_cast<int64_t>(v)));
    case DType::kI16: return put(static_cast<int16_t>(static_cast<int64_t>(v)));
    case DType::kI32: return put(static_cast<int32_t>(static_cast<int64_t>(v)));
    case DType::kI64: return put(static_cast<int64_t>(v));
    case DType::kU16: return put(static_cast<uint16_t>(static_cast<int64_t>(v)));
    case DType::kU32: return put(static_cast<uint32_t>(static_cast<int64_t>(v)));
    case DType::kF16: return put(FloatToHalf(static_cast<float>(v)));
    case DType::kBF16: return put(FloatToBFloat16(static_cast<float>(v)));
    case DType::kF32: return put(static_cast<float>(v));
    case DType::kF64: return put(v);
    default: return;
  }
}

}  // namespace

Result<Constant> MakeConstant(std::string name, TensorType type, DType stored, std::span<const std::byte> storage,
                              std::vector<int64_t> strides, int64_t offset) {
  if (!type.shape.is_constant() || strides.size() != type.rank()) return InvalidArgument("constant '", name, "' has no fixed shape");
  const size_t item = ByteSize(stored);
  const __int128 elements = item ? static_cast<__int128>(storage.size() / item) : 0;
  __int128 numel = 1, low = offset, high = offset;
  for (size_t i = 0; i < type.rank(); ++i) {
    const int64_t d = type.shape[i].value();
    if (d < 0) return InvalidArgument("constant '", name, "' has a negative size");
    numel *= d;
    if (numel > (static_cast<__int128>(1) << 48)) return InvalidArgument("constant '", name, "' is too large");
    if (d <= 1) {  // nothing steps along it: a stride of any size, which a file may say, must not be computed with
      strides[i] = 0;
      continue;
    }
    const __int128 reach = static_cast<__int128>(strides[i]) * (d - 1);
    (reach < 0 ? low : high) += reach;
  }
  if (numel > 0 && (low < 0 || high >= elements))
    return Corrupt("constant '", name, "' of type ", type.ToString(), " reaches past the ", storage.size(), " bytes of its storage");
  if (numel == 0) {
    strides.assign(strides.size(), 0);
    offset = 0;
  }
  Constant c;
  c.name = std::move(name);
  c.type = std::move(type);
  c.stored = stored;
  c.storage = storage;
  c.strides = std::move(strides);
  c.offset = offset;
  return c;
}

Constant MakeOwnedConstant(std::string name, TensorType type, std::vector<std::byte> data) {
  Constant c;
  c.name = std::move(name);
  c.stored = type.dtype;
  c.strides = RowMajorStrides(type.shape);
  DT_CHECK(data.size() == static_cast<size_t>(type.shape.numel().value()) * ByteSize(type.dtype));
  c.type = std::move(type);
  data.reserve(data.size() + 16);  // kernels may read 16 bytes past a tensor
  c.owned = std::make_shared<const std::vector<std::byte>>(std::move(data));
  c.storage = *c.owned;
  return c;
}

Constant MakeRecipeConstant(std::string name, TensorType type, std::function<void(std::byte*)> recipe) {
  Constant c;
  c.name = std::move(name);
  c.stored = type.dtype;
  c.strides = RowMajorStrides(type.shape);
  c.type = std::move(type);
  c.recipe = std::make_shared<const std::function<void(std::byte*)>>(std::move(recipe));
  return c;
}

bool Constant::contiguous() const {
  if (recipe) return false;
  if (stored != type.dtype) return false;
  if (nbytes() == 0) return true;
  int64_t n = 1;
  for (size_t i = type.rank(); i-- > 0;) {
    const int64_t d = type.shape[i].value();
    if (d != 1 && strides[i] != n) return false;
    n *= d;
  }
  return true;
}

std::span<const std::byte> Constant::bytes() const {
  DT_CHECK(contiguous());
  return storage.subspan(static_cast<size_t>(offset) * ByteSize(stored), nbytes());
}

void Constant::CopyTo(std::byte* destination) const {
  if (nbytes() == 0) return;
  if (recipe) return (*recipe)(destination);
  if (contiguous()) {
    std::memcpy(destination, storage.data() + static_cast<size_t>(offset) * ByteSize(stored), nbytes());
    return;
  }
  const size_t from = ByteSize(stored), to = ByteSize(type.dtype), rank = type.rank();
  std::vector<int64_t> index(rank, 0);
  const int64_t numel = type.shape.numel().value();
  int64_t at = offset;
  for (int64_t i = 0; i < numel; ++i) {
    const std::byte* p = storage.data() + static_cast<size_t>(at) * from;
    if (stored == type.dtype) std::memcpy(destination, p, to);
    else WriteNumber(type.dtype, ReadNumber(stored, p), destination);
    destination += to;
    for (size_t d = rank; d-- > 0;) {
      at += strides[d];
      if (++index[d] < type.shape[d].value()) break;
      at -= strides[d] * type.shape[d].value();
      index[d] = 0;
    }
  }
}

}  // namespace dovetail
