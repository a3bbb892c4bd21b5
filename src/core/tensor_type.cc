#include "core/tensor_type.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace dovetail {
namespace {

// Shortest text that reads back as the same float.
std::string FormatFloat(float v) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v);
  return std::string(buffer, end.ptr);
}

}  // namespace

Shape::Shape(std::initializer_list<Dim> dims) : Shape(std::span<const Dim>(dims.begin(), dims.size())) {}
Shape::Shape(std::span<const Dim> dims) {
  for (Dim d : dims) push_back(d);
}
Shape::Shape(std::span<const int64_t> dims) {
  for (int64_t d : dims) push_back(d);
}
void Shape::push_back(Dim d) {
  DT_CHECK(rank_ < kMaxRank);
  dims_[rank_++] = d;
}
void Shape::insert(size_t at, Dim d) {
  DT_CHECK(rank_ < kMaxRank && at <= rank_);
  for (size_t i = rank_++; i > at; --i) dims_[i] = dims_[i - 1];
  dims_[at] = d;
}
void Shape::erase(size_t at) {
  DT_CHECK(at < rank_);
  for (size_t i = at; i + 1 < rank_; ++i) dims_[i] = dims_[i + 1];
  --rank_;
}
bool Shape::is_constant() const {
  return std::all_of(begin(), end(), [](Dim d) { return d.is_constant(); });
}
Dim Shape::numel() const {
  Dim n = 1;
  for (Dim d : dims()) n = n * d;
  return n;
}
std::string Shape::ToString() const {
  std::string s;
  for (size_t i = 0; i < rank_; ++i) {
    if (i) s += ',';
    s += dims_[i].ToString();
  }
  return s;
}
bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

std::string TensorType::ToString() const {
  std::string s = StrCat(Name(dtype), "[", shape.ToString(), "]");
  switch (quant.kind) {
    case QuantParams::Kind::kNone: break;
    case QuantParams::Kind::kPerTensor: s += StrCat("{per_tensor scale=", FormatFloat(quant.scale), " zero_point=", quant.zero_point, "}"); break;
    case QuantParams::Kind::kPerChannel: s += StrCat("{per_channel axis=", quant.axis, quant.bits == 4 ? " bits=4}" : "}"); break;
    case QuantParams::Kind::kPerBlock: s += StrCat("{per_block size=", quant.block, " bits=", static_cast<int>(quant.bits), "}"); break;
    case QuantParams::Kind::kDynamic: s += "{dynamic per_row}"; break;
  }
  return s;
}

TensorType Dequantized(const TensorType& type) { return type.per_tensor() ? TensorType(DType::kF32, type.shape) : type; }

Result<Shape> Broadcast(const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.rank(), b.rank());
  Shape out;
  for (size_t i = 0; i < rank; ++i) {
    const Dim x = i + a.rank() >= rank ? a[i + a.rank() - rank] : Dim(1);
    const Dim y = i + b.rank() >= rank ? b[i + b.rank() - rank] : Dim(1);
    if (x == y || y == Dim(1)) out.push_back(x);
    else if (x == Dim(1)) out.push_back(y);
    else return InvalidArgument("shapes [", a.ToString(), "] and [", b.ToString(), "] do not broadcast");
  }
  return out;
}

Result<size_t> NormalizeAxis(int64_t axis, size_t rank) {
  const int64_t r = static_cast<int64_t>(std::max<size_t>(rank, 1));
  if (axis < -r || axis >= r) return InvalidArgument("dimension ", axis, " of a tensor of rank ", rank);
  return static_cast<size_t>(axis < 0 ? axis + r : axis);
}

}  // namespace dovetail
