// XNNPACK's tables of kernels, which its headers do not have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dovetail {

// Where `kernel` is in the first `words` pointers of `table`; null where it is not or there is no table. The caller knows that the table is as long.
template <class Kernel>
Kernel** FindKernel(const void* table, size_t words, Kernel* kernel) {
  Kernel* const* const first = static_cast<Kernel* const*>(table);
  if (!first) return nullptr;
  Kernel* const* const at = std::find(first, first + words, kernel);
  return at == first + words ? nullptr : const_cast<Kernel**>(at);
}

// Its record of the matrix products of one kind of weights, as the version that tools/build_xnnpack.sh builds has it: kernels by the number of rows that
// they take, less one. An operator takes the one that fits its number of rows best, up to `rows`; weights are packed for `columns` and `log2_inner`.
struct GemmTable {
  static constexpr size_t kMostRows = 32;
  void* gemm[kMostRows];
  void* igemm[kMostRows];
  void* others[4][kMostRows];  // with other clamps
  void* functions[9];
  uint8_t rows, columns, log2_inner, log2_split, planes, packed_rows;
};

// Adds a kernel for `rows` rows to the record that has `known` as its kernel for most rows and packs weights for it. Does nothing where the record is another.
template <class Kernel>
void AddTile(const void* table, Kernel* known, size_t known_rows, size_t columns, size_t log2_inner, Kernel* ours, size_t rows) {
  auto* t = static_cast<GemmTable*>(const_cast<void*>(table));
  if (!t || t->gemm[known_rows - 1] != reinterpret_cast<void*>(known)) return;
  if (t->rows != known_rows || t->columns != columns || t->log2_inner != log2_inner || rows <= known_rows || rows > GemmTable::kMostRows) return;
  t->gemm[rows - 1] = reinterpret_cast<void*>(ours);
  t->rows = static_cast<uint8_t>(rows);
}

}  // namespace dovetail
