// The QNN delegate: runs context binaries in ExecuTorch's blob (format/qnn_blob.h), made by us or by ExecuTorch, with the QNN library that is installed
// (QnnOptions). Nothing of the library is touched before a program with such a delegate is loaded.
//
// The graph that runs is the one named as the method, or the binary's only one. Its inputs are the call's inputs and its outputs the call's outputs, in the
// binary's order, with two exceptions of ExecuTorch's: where all inputs have names input_K_..., they are in the order of K; and a tensor with mutbuf_N_ in its
// name is no argument but a state inside the delegate, whose input and output are the same memory and which starts as zeros.
//
// Delegates of a Program with the same blob share a context. Graphs have fixed shapes. An output may be the memory of an input.
#pragma once

#include "runtime/delegate.h"

namespace dovetail {

// The line of the loader's table: id "QnnBackend".
extern const DelegateEntry kQnnDelegate;

}  // namespace dovetail
