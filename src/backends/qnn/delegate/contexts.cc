#include "backends/qnn/delegate/contexts.h"

#include <cstring>

#include "format/qnn_blob.h"

namespace dovetail::qnn {
namespace {

Result<QnnSpec> SpecOf(const DelegateInitContext& ctx) {
  for (const DelegateCompileSpec& spec : ctx.compile_specs)
    if (spec.key == kQnnCompileSpecKey) return ReadQnnCompileSpec(spec.value, kQnnDelegateId);
  return QnnSpec();
}

// The chip to run for, on which the user, the compile spec and the binary agree as far as they say anything.
Result<Soc> ChooseSoc(const std::string& wanted, const QnnSpec& spec, uint32_t in_binary) {
  Soc soc = {"a SoC that Dovetail has no name for", spec.soc_model ? spec.soc_model : in_binary, spec.arch, spec.vtcm_mb};
  if (spec.soc_model && in_binary && spec.soc_model != in_binary)
    return Corrupt(kQnnDelegateId, ": the compile spec says ", DescribeSoc(spec.soc_model), ", but the context binary was made for ", DescribeSoc(in_binary));
  if (!wanted.empty()) {
    DT_ASSIGN_OR_RETURN(const Soc* found, FindSoc(wanted));
    if (soc.model && soc.model != found->model)
      return Unsupported(kQnnDelegateId, ": the program was compiled for ", DescribeSoc(soc.model), ", not for ", DescribeSoc(found->model),
                         "; compile it again with --soc ", found->name);
    return *found;
  }
  if (soc.model == 0) return InvalidArgument(kQnnDelegateId, ": the program does not say which SoC it was compiled for; name it (--soc)");
  for (const Soc& known : Socs())
    if (known.model == soc.model) return known;
  return soc;
}

}  // namespace

Contexts::~Contexts() {
  // Another Program may be running.
  for (const std::unique_ptr<OpenedBinary>& opened : opened_) {
    const std::lock_guard lock(opened->library->mutex());
    opened->context.reset();
  }
  for (std::shared_ptr<Device>& device : devices_) {
    const std::lock_guard lock(device->library().mutex());
    device.reset();
  }
}

Result<OpenedBinary*> Contexts::Open(const DelegateInitContext& ctx) {
  DT_ASSIGN_OR_RETURN(const QnnBlob blob, ReadQnnBlob(ctx.payload, kQnnDelegateId));
  DT_ASSIGN_OR_RETURN(const QnnSpec spec, SpecOf(ctx));
#if defined(__x86_64__)
  // Its createFromBinary fails or calls a null pointer.
  if (spec.shared_weights)
    return Unsupported(kQnnDelegateId, ": the program's methods share weights, which the simulator in the x86-64 library cannot; to run it here, ",
                       "compile it with --qnn-separate-weights");
#endif
  const QnnOptions options = ctx.program ? ctx.program->qnn : QnnOptions();
  auto opened = std::make_unique<OpenedBinary>();
  opened->binary = blob.binary;
  // What can be refused without the library is.
  if (!options.soc.empty() && spec.soc_model)
    if (Result<Soc> soc = ChooseSoc(options.soc, spec, 0); !soc.ok()) return std::move(soc).status();
  DT_ASSIGN_OR_RETURN(opened->library, Library::Open(options.library));
  for (const std::unique_ptr<OpenedBinary>& other : opened_) {
    if (other->binary.size() != blob.binary.size() || std::memcmp(other->binary.data(), blob.binary.data(), blob.binary.size()) != 0) continue;
    if (Result<Soc> soc = ChooseSoc(options.soc, spec, other->info.soc_model); !soc.ok()) return std::move(soc).status();
    return other.get();
  }
  const std::lock_guard lock(opened->library->mutex());
  Result<BinaryInfo> info = ReadBinaryInfo(*opened->library, blob.binary);
  if (!info.ok()) return std::move(info).status().While("reading a QNN context binary");
  opened->info = std::move(*info);
  DT_RETURN_IF_ERROR(CheckVersion(opened->info, *opened->library));
  DT_ASSIGN_OR_RETURN(opened->soc, ChooseSoc(options.soc, spec, opened->info.soc_model));
  opened_.push_back(std::move(opened));
  return opened_.back().get();
}

Result<Context*> Contexts::ContextOf(OpenedBinary* opened) {
  if (opened->context) return opened->context.get();
  std::shared_ptr<Device> device;
  for (const std::shared_ptr<Device>& known : devices_)
    if (&known->library() == opened->library && known->soc().model == opened->soc.model) device = known;
  if (!device) {
    DT_ASSIGN_OR_RETURN(device, Device::Create(*opened->library, opened->soc));
    devices_.push_back(device);
  }
  Result<std::unique_ptr<Context>> context = Context::FromBinary(device, opened->binary);
  if (!context.ok())
    return std::move(context).status().While(StrCat("loading a QNN context binary made by ", opened->info.build, " for ", DescribeSoc(opened->soc.model)));
  opened->context = std::move(*context);
  return opened->context.get();
}

Result<const BinaryGraph*> GraphOf(const BinaryInfo& info, std::string_view method) {
  if (const BinaryGraph* graph = info.FindGraph(method)) return graph;
  if (info.graphs.size() == 1) return &info.graphs[0];
  std::string names;
  for (const BinaryGraph& graph : info.graphs) names += StrCat(names.empty() ? "'" : ", '", graph.name, "'");
  return Corrupt(kQnnDelegateId, ": the context binary has no graph '", method, "'; it has ", names);
}

}  // namespace dovetail::qnn
