// Several models in one program: methods that share states and weights by name.
#pragma once

#include "ir/graph.h"

namespace dovetail {

// Moves the graphs of `other` into `module`. A constant of the same name, type and contents is stored once. A state of the same name is the
// same state: its type and initial contents must agree. Symbols of `other` that mean another range get new names. Both are in the
// functional form, without regions. kInvalidArgument names the state or the method that clashes.
Status MergeMethods(Module& module, Module other);

}  // namespace dovetail
