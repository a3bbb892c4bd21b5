// Sliding windows over one or two spatial dims: what convolution and pooling share. One spatial dim is handled as two, the first of
// size 1.
#pragma once

#include <array>
#include <span>

#include "ops/infer_util.h"

namespace dovetail {

struct WindowDim {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  // Elements from the first to past the last that a window spans.
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
};
using Window = std::array<WindowDim, 2>;

// Element i of an int[] that has one element for all dims or `count`; missing (an empty list): fallback. Refuses symbolic values and
// those outside [min, 2^31).
Result<int64_t> WindowArg(const Attr& attr, size_t i, size_t count, int64_t fallback, int64_t min, std::string_view what);

// Windows over as many spatial dims as `kernel` has sizes, one or two, as two. `dilation` null: none. An absent stride is `fallback`, or the kernel's size if
// that is 0.
Result<Window> ReadWindow(std::span<const int64_t> kernel, const Attr& stride, const Attr& padding, const Attr* dilation, int64_t fallback);

// Size of the result along one dim, InvalidArgument when it is constant and below 1. With ceil_mode a last window that is not whole
// counts too, if it starts inside the input or its padding in front.
Result<Dim> SlideWindow(Dim size, const WindowDim& w, bool ceil_mode, std::string_view what);
// The reverse, of a transposed convolution.
Result<Dim> SpreadWindow(Dim size, const WindowDim& w, int64_t output_padding, std::string_view what);

}  // namespace dovetail
