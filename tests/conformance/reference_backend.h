// A backend for tests: regions run in the reference interpreter. It takes every operator, or only some, and can update states in place
// through aliased results, so that what partitioner, state lowering, emitter and runtime do with delegates is tested apart from any real one.
#pragma once

#include "backends/backend.h"
#include "runtime/delegate.h"

namespace dovetail::testing {

// Takes everything but what reads no tensor.
const Backend& ReferenceBackend();
// The same, and index_put on a state updates the state's memory.
const Backend& InPlaceReferenceBackend();
// Takes only index_put, in place, so that states are updated by regions between others.
const Backend& StateReferenceBackend();

// Runs what they lower. Regions stay in their Module, which must outlive the delegates.
extern const DelegateEntry kReferenceDelegate;

// How often a delegate has updated an aliased operand since the start.
size_t AliasedUpdates();

}  // namespace dovetail::testing
