// Everything that a program needs to load and run a compiled model. Compiling is the work of the command `dovetail`.
#pragma once

#include "dovetail/program.h"
