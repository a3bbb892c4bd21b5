#include "qnn/harness.h"

#include "backends/qnn/delegate/delegate.h"
#include "compile/emit.h"
#include "compile/lower_states.h"
#include "compile/partition.h"
#include "format/pte_writer.h"
#include "ir/verifier.h"

namespace dovetail::testing {

Result<QnnProgram> StartOnQnn(Module& module, const Backend& backend) {
  DT_RETURN_IF_ERROR(Verify(module));
  const Backend* backends[] = {&backend};
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const PartitionReport report, Partition(module, backends));
  DT_RETURN_IF_ERROR(Verify(module));
  DT_RETURN_IF_ERROR(LowerStates(module));
  EmitStats stats;
  DT_ASSIGN_OR_RETURN(const pte::ProgramDesc desc, Emit(module, {backends, false, {}}, stats));
  DT_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, pte::SerializePte(desc));
  static const DelegateEntry delegates[] = {kQnnDelegate};
  QnnProgram r;
  DT_ASSIGN_OR_RETURN(r.program, Program::FromBytes(bytes, "test.pte"));
  DT_ASSIGN_OR_RETURN(r.instance, r.program->CreateInstance({.threads = 1, .delegates = delegates}));
  return r;
}

}  // namespace dovetail::testing
