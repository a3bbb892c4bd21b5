// The contexts of a Program's delegates. Delegates with the same binary, such as those of prefill and decode, share one.
#pragma once

#include <memory>
#include <vector>

#include "backends/qnn/api/binary_info.h"
#include "runtime/delegate.h"

namespace dovetail::qnn {

struct OpenedBinary {
  std::span<const std::byte> binary;
  const Library* library = nullptr;
  Soc soc = {};
  BinaryInfo info;
  std::unique_ptr<Context> context;  // null until a delegate needs it
};

class Contexts final : public DelegateShared {
 public:
  ~Contexts() override;
  // Reads the delegate's blob and compile spec, opens the library and reads what is in the binary. Refuses a binary for another chip than the spec or the
  // user says, and one that is newer than the library.
  Result<OpenedBinary*> Open(const DelegateInitContext& ctx);
  Result<Context*> ContextOf(OpenedBinary* opened);

 private:
  std::vector<std::shared_ptr<Device>> devices_;
  std::vector<std::unique_ptr<OpenedBinary>> opened_;
};

// The graph that the delegate is to run.
Result<const BinaryGraph*> GraphOf(const BinaryInfo& info, std::string_view method);

}  // namespace dovetail::qnn
