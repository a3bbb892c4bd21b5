#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace dovetail::internal {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "dovetail: broken invariant: %s at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace dovetail::internal
