#include "ops/window.h"

namespace dovetail {

Result<int64_t> WindowArg(const Attr& attr, size_t i, size_t count, int64_t fallback, int64_t min, std::string_view what) {
  const std::span<const Dim> dims = DimsOf(attr);
  if (dims.empty()) return fallback;
  if (dims.size() != 1 && dims.size() != count) return InvalidArgument(what, " has ", dims.size(), " elements, not ", count);
  const Dim d = dims.size() == 1 ? dims[0] : dims[i];
  if (!d.is_constant()) return Unsupported(what, " is symbolic (", d.ToString(), "); it must be a constant");
  if (d.value() < min || d.value() > INT32_MAX) return InvalidArgument(what, " is ", d.value(), "; it must be from ", min, " to ", INT32_MAX);
  return d.value();
}

Result<Window> ReadWindow(std::span<const int64_t> kernel, const Attr& stride, const Attr& padding, const Attr* dilation, int64_t fallback) {
  Window w;
  for (size_t i = 0; i < kernel.size(); ++i) {
    WindowDim& d = w[2 - kernel.size() + i];
    d.kernel = kernel[i];
    DT_ASSIGN_OR_RETURN(d.stride, WindowArg(stride, i, kernel.size(), fallback ? fallback : d.kernel, 1, "stride"));
    DT_ASSIGN_OR_RETURN(d.padding, WindowArg(padding, i, kernel.size(), 0, 0, "padding"));
    if (!dilation) continue;
    DT_ASSIGN_OR_RETURN(d.dilation, WindowArg(*dilation, i, kernel.size(), 1, 1, "dilation"));
  }
  return w;
}

namespace {
Result<Dim> Positive(Dim out, Dim size, const WindowDim& w, std::string_view what) {
  if (out.is_constant() && out.value() < 1)
    return InvalidArgument(what, ": a window of ", w.extent(), " does not fit into a size of ", size.ToString(), " with a padding of ", w.padding);
  return out;
}
}  // namespace

Result<Dim> SlideWindow(Dim size, const WindowDim& w, bool ceil_mode, std::string_view what) {
  const Dim room = size + Dim(2 * w.padding - w.extent());
  if (room.is_constant() && room.value() < 0) return Positive(0, size, w, what);
  if (!ceil_mode) return Positive(Dim::FloorDiv(room, w.stride) + Dim(1), size, w, what);
  const Dim all = Dim::FloorDiv(room + Dim(w.stride - 1), w.stride) + Dim(1);
  return Positive(Dim::Min(all, Dim::FloorDiv(size + Dim(w.padding - 1), w.stride) + Dim(1)), size, w, what);
}

Result<Dim> SpreadWindow(Dim size, const WindowDim& w, int64_t output_padding, std::string_view what) {
  return Positive((size - Dim(1)) * Dim(w.stride) + Dim(w.extent() - 2 * w.padding + output_padding), size, w, what);
}

}  // namespace dovetail
