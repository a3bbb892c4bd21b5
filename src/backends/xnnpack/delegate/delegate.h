// The XNNPACK delegate: runs XN01 blobs (format/xnnpack_blob.h), made by us or by ExecuTorch.
//
// Sizes: the graph is reshaped to its upper bounds when it is created, so that XNNPACK's scratch memory has its largest size from
// then on; it is shared by the delegates of a Method. Packed weights are shared by the delegates of a Program. A call with new input
// sizes reshapes the graph, and one with the sizes and addresses of the call before only runs it.
#pragma once

#include "runtime/delegate.h"

namespace dovetail {

// The line of the loader's table: id "XnnpackBackend".
extern const DelegateEntry kXnnpackDelegate;

}  // namespace dovetail
