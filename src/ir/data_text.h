// The data of constants and states in the text form.
#pragma once

#include <string>

#include "core/attr.h"
#include "ir/graph.h"

namespace dovetail::text {

// "[0.5,1.0]", "zeros", or "external" for what is too long to be written out.
std::string DataText(const Constant& constant);
// Writes one element. False for a value that is no element of a tensor of this dtype.
bool PutElement(DType dtype, const Attr& value, std::byte* destination);

}  // namespace dovetail::text
