// DT_CHECK(condition): aborts with the place when an invariant of ours is broken. Input can never reach one (fuzzing
// proves it): a problem with input is a Status.
#pragma once

namespace dovetail::internal {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace dovetail::internal

#define DT_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::dovetail::internal::CheckFailed(#condition, __FILE__, __LINE__))
