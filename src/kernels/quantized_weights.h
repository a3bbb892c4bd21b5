// Rows of quantized matrices (ops/quantization.h) as plain numbers, and their products with one row.
#pragma once

#include "ops/quantization.h"

namespace dovetail {

// The integers of elements [begin, begin + count) of row n; begin and count are even for 4-bit weights, whose rows are.
void UnpackIntegers(const QuantizedMatrix& w, int64_t n, int64_t begin, int64_t count, int16_t* out);
// The same times their scales.
void UnpackFloats(const QuantizedMatrix& w, int64_t n, int64_t begin, int64_t count, float* out);

// One f32 row as its product with 4-bit weights wants it. A register of kLanes 32-bit numbers holds 8 nibbles to a lane; the elements of these
// kLanes * 8 are a group: element 8 * i + j of a group stands at j * kLanes + i of its part of `x`, so that one mask picks out the weights for
// kLanes of them. Nibble j of a lane is worth 16^j there, which `x` makes up for; and it is 8 too large, so the products of a group are summed
// onto `starts`, -8 times the sum of a lane's elements. Zeros fill the last group.
struct GroupedRow {
  const float *x, *starts;
};
struct NibbleRows {
  const uint8_t* bytes;
  const uint16_t* scales;  // bf16
  int64_t columns, blocks;
};
// Whether blocks are whole groups, or half ones.
bool FitsGroups(int64_t block);
// How many floats `x` and `starts` take.
int64_t GroupedSize(int64_t columns);
int64_t StartsSize(int64_t columns);
void Group(const float* from, int64_t columns, float* x, float* starts);
// out[n] = the row's product with row n, scales included, of `rows` rows.
void MultiplyNibbles(const NibbleRows& w, const GroupedRow& row, int64_t rows, float* out);
// The sums of products, exact as long as they fit into 32 bits: of rows [0, rows) of a, `a_stride` apart, with b.
void DotIntegers(const int16_t* a, int64_t a_stride, int64_t rows, const int16_t* b, int64_t count, int32_t* out);

}  // namespace dovetail
