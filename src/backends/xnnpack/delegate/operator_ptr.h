// An operator of XNNPACK that is deleted with its owner.
#pragma once

#include <xnnpack.h>

#include <memory>

namespace dovetail {

struct DeleteOperator {
  void operator()(xnn_operator* op) const { xnn_delete_operator(op); }
};
using OperatorPtr = std::unique_ptr<xnn_operator, DeleteOperator>;

}  // namespace dovetail
