// Element types of reference kernels: from a DType at run time to a C++ type, and PyTorch's conversions between them.
//
//   return DispatchElement(ctx.out().dtype, [&]<class T>() { ...; return OkStatus(); });
//
// T is the type of an element in memory. Load gives the value to compute with (bool for BoolElement, float for the 16-bit floats,
// T itself otherwise), Convert<T> makes an element of any value: 16-bit floats are computed in float and rounded once.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/status.h"
#include "core/attr.h"
#include "core/dtype.h"
#include "core/tensor_view.h"

namespace dovetail {

// A byte of a file may be neither 0 nor 1, so a bool is read as a byte.
struct BoolElement {
  uint8_t bits;
};
struct HalfElement {
  uint16_t bits;
};
struct BFloat16Element {
  uint16_t bits;
};

template <class T>
struct ElementTraits;
#define DT_ELEMENT(Element, Value, Type)      \
  template <>                                 \
  struct ElementTraits<Element> {             \
    using Compute = Value;                    \
    static constexpr DType kDType = DType::Type; \
  };
DT_ELEMENT(BoolElement, bool, kBool)
DT_ELEMENT(uint8_t, uint8_t, kU8)
DT_ELEMENT(int8_t, int8_t, kI8)
DT_ELEMENT(int16_t, int16_t, kI16)
DT_ELEMENT(int32_t, int32_t, kI32)
DT_ELEMENT(int64_t, int64_t, kI64)
DT_ELEMENT(uint16_t, uint16_t, kU16)
DT_ELEMENT(uint32_t, uint32_t, kU32)
DT_ELEMENT(HalfElement, float, kF16)
DT_ELEMENT(BFloat16Element, float, kBF16)
DT_ELEMENT(float, float, kF32)
DT_ELEMENT(double, double, kF64)
#undef DT_ELEMENT

template <class T>
using ComputeOf = typename ElementTraits<T>::Compute;

template <class T>
ComputeOf<T> Load(T element) {
  if constexpr (std::is_same_v<T, BoolElement>) return element.bits != 0;
  else if constexpr (std::is_same_v<T, HalfElement>) return HalfToFloat(element.bits);
  else if constexpr (std::is_same_v<T, BFloat16Element>) return BFloat16ToFloat(element.bits);
  else return element;
}

// A float outside the integers' range saturates at that of i64, and is then cut to T's bits; NaN is 0.
template <class T, class V>
T Convert(V value) {
  if constexpr (std::is_same_v<T, BoolElement>) {
    return {static_cast<uint8_t>(value != V(0))};
  } else if constexpr (std::is_same_v<T, HalfElement>) {
    return {FloatToHalf(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<T, BFloat16Element>) {
    return {FloatToBFloat16(static_cast<float>(value))};
  } else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<V>) {
    if (std::isnan(value)) return 0;
    if (value >= V(0x1p63)) return static_cast<T>(INT64_MAX);
    if (value < V(-0x1p63)) return static_cast<T>(INT64_MIN);
    return static_cast<T>(static_cast<int64_t>(value));
  } else {
    return static_cast<T>(value);
  }
}

// A Scalar argument as PyTorch casts it to T before computing; None is `fallback`.
template <class T>
ComputeOf<T> ScalarAs(const Attr& scalar, ComputeOf<T> fallback = {}) {
  if (const bool* b = scalar.get<bool>()) return static_cast<ComputeOf<T>>(*b);
  if (const Dim* d = scalar.get<Dim>()) return Load(Convert<T>(d->constant().value_or(0)));
  if (const double* d = scalar.get<double>()) return Load(Convert<T>(*d));
  return fallback;
}

// Element i of memory of type `from`, converted to T.
template <class T>
ComputeOf<T> ReadElement(DType from, const void* data, int64_t i);

// A tensor of any element type read as T.
template <class T>
class Reader {
 public:
  explicit Reader(const TensorView& v) : type_(v.dtype), data_(v.data) {}
  ComputeOf<T> operator[](int64_t i) const {
    return type_ == ElementTraits<T>::kDType ? Load(static_cast<const T*>(data_)[i]) : ReadElement<T>(type_, data_, i);
  }

 private:
  DType type_;
  const void* data_;
};

// fn.operator()<T>() -> Status for the element type `t`.
#define DT_CASE(Element) \
  case ElementTraits<Element>::kDType: return fn.template operator()<Element>();
template <class Fn>
Status DispatchFloat(DType t, Fn&& fn) {
  switch (t) {
    DT_CASE(HalfElement) DT_CASE(BFloat16Element) DT_CASE(float) DT_CASE(double)
    default: return Unsupported("no kernel for elements of type ", Name(t), "; it takes floating point");
  }
}
template <class Fn>
Status DispatchInteger(DType t, Fn&& fn) {
  switch (t) {
    DT_CASE(uint8_t) DT_CASE(int8_t) DT_CASE(int16_t) DT_CASE(int32_t) DT_CASE(int64_t)
    default: return Unsupported("no kernel for elements of type ", Name(t), "; it takes integers");
  }
}
// Floats and integers.
template <class Fn>
Status DispatchNumber(DType t, Fn&& fn) {
  return IsFloat(t) ? DispatchFloat(t, fn) : DispatchInteger(t, fn);
}
// Floats, integers and bool.
template <class Fn>
Status DispatchElement(DType t, Fn&& fn) {
  return t == DType::kBool ? fn.template operator()<BoolElement>() : DispatchNumber(t, fn);
}
// Every type that converts to and from the others: those and u16, u32.
template <class Fn>
Status DispatchConvertible(DType t, Fn&& fn) {
  switch (t) {
    DT_CASE(uint16_t) DT_CASE(uint32_t)
    default: return DispatchElement(t, fn);
  }
}
#undef DT_CASE

// memcpy that takes the null pointers of empty tensors.
inline void CopyBytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace dovetail
