#include "dovetail/program.h"

#include <cstring>

#include "runtime/method_impl.h"
#include "runtime/thread_pool.h"

namespace dovetail {
namespace {

// Constants of kernels up to this are checked while loading; of larger ones the pages are read when kernels need them.
constexpr size_t kSmallConstants = 1 << 20;

Status ReadAndDescribe(ProgramData* data, std::span<const std::byte> bytes) {
  DT_ASSIGN_OR_RETURN(data->view, ReadPte(bytes, data->name));
  const pte::SubsegmentOffsets* constants = data->view.program().constant_segment();
  if (data->view.has_hashes() && constants && constants->segment_index() < data->view.program().segments()->size() &&
      data->view.Segment(constants->segment_index()).size() <= kSmallConstants)
    DT_RETURN_IF_ERROR(data->CheckSegment(constants->segment_index()));
  return DescribeProgram(data);
}

}  // namespace

Status ProgramData::CheckSegment(uint32_t segment) const {
  const std::lock_guard lock(checked_mutex);
  if (checked.contains(segment)) return OkStatus();
  DT_RETURN_IF_ERROR(view.CheckSegment(segment));
  checked.insert(segment);
  return OkStatus();
}

Status ProgramData::Check(std::span<const std::byte> bytes) const {
  if (!view.has_hashes()) return OkStatus();
  const std::optional<uint32_t> segment = view.SegmentOf(bytes);
  return segment ? CheckSegment(*segment) : OkStatus();
}

Program::Program(std::unique_ptr<ProgramData> data) : data_(std::move(data)) {}
Program::~Program() = default;

Result<std::unique_ptr<Program>> Program::Load(const std::string& path, const WeightsOptions& weights, const QnnOptions& qnn) {
  auto data = std::make_unique<ProgramData>();
  DT_ASSIGN_OR_RETURN(data->file, MappedFile::Open(path));
  data->name = path;
  data->source = {data->file->bytes(), data->file.get(), weights, qnn};
  DT_RETURN_IF_ERROR(ReadAndDescribe(data.get(), data->file->bytes()));
  return std::unique_ptr<Program>(new Program(std::move(data)));
}

Result<std::unique_ptr<Program>> Program::FromBytes(std::span<const std::byte> bytes, std::string name, const QnnOptions& qnn) {
  auto data = std::make_unique<ProgramData>();
  data->name = std::move(name);
  if (!data->copy.Allocate(bytes.size())) return OutOfRange("'", data->name, "': no memory for a copy of ", bytes.size(), " bytes");
  if (!bytes.empty()) std::memcpy(data->copy.data(), bytes.data(), bytes.size());
  data->source.image = {data->copy.data(), bytes.size()};
  data->source.qnn = qnn;
  DT_RETURN_IF_ERROR(ReadAndDescribe(data.get(), {data->copy.data(), bytes.size()}));
  auto program = std::unique_ptr<Program>(new Program(std::move(data)));
  DT_RETURN_IF_ERROR(program->CheckAll());
  return program;
}

Status Program::CheckAll() const {
  const auto* segments = data_->view.program().segments();
  for (uint32_t s = 0; data_->view.has_hashes() && s < segments->size(); ++s) DT_RETURN_IF_ERROR(data_->CheckSegment(s));
  return OkStatus();
}

const std::string& Program::name() const { return data_->name; }
std::span<const MethodInfo> Program::methods() const { return data_->infos; }
const MethodInfo* Program::FindMethod(std::string_view name) const {
  for (const MethodInfo& m : data_->infos)
    if (m.name == name) return &m;
  return nullptr;
}
std::span<const StateInfo> Program::states() const { return data_->states; }
const QuantizationInfo& Program::quantization() const { return data_->quantization; }
const SymbolRanges& Program::symbols() const { return data_->symbols; }
std::optional<std::span<const std::byte>> Program::FindNamedData(std::string_view key) const { return data_->view.FindNamedData(key); }
const PteView& Program::view() const { return data_->view; }
const ProgramSource& Program::source() const { return data_->source; }

Result<std::unique_ptr<Instance>> Program::CreateInstance(const InstanceOptions& options) const {
  auto data = std::make_unique<InstanceData>();
  data->program = data_.get();
  data->options = options;
  data->memory_left = options.memory_limit;
  data->methods.resize(data_->infos.size());
  for (std::span<const std::byte> initial : data_->initial) DT_RETURN_IF_ERROR(data_->Check(initial));
  DT_RETURN_IF_ERROR(data->states.Init(*data_, &data->memory_left));
  data->threads = std::make_unique<ThreadPool>(options.threads);
  return std::unique_ptr<Instance>(new Instance(std::move(data)));
}

InstanceData::InstanceData() = default;
InstanceData::~InstanceData() {
  methods.clear();  // delegates use the pool
}

Instance::Instance(std::unique_ptr<InstanceData> data) : data_(std::move(data)) {}
Instance::~Instance() = default;

Result<Method*> Instance::LoadMethod(std::string_view name) {
  const ProgramData& program = *data_->program;
  std::string names;
  for (size_t m = 0; m < program.infos.size(); ++m) {
    names += StrCat(names.empty() ? "" : ", ", program.infos[m].name);
    if (program.infos[m].name != name) continue;
    if (!data_->methods[m]) {
      DT_ASSIGN_OR_RETURN(std::unique_ptr<MethodImpl> impl, LoadMethodImpl(data_.get(), m));
      data_->methods[m] = std::make_unique<Method>(std::move(impl));
    }
    return data_->methods[m].get();
  }
  return NotFound("'", program.name, "' has no method '", name, "'; it has ", names);
}

std::span<const StateInfo> Instance::states() const { return data_->program->states; }
Result<TensorView> Instance::State(std::string_view name) const {
  DT_ASSIGN_OR_RETURN(const size_t s, data_->states.Find(name));
  return data_->states.View(s);
}
Status Instance::WriteState(std::string_view name, const TensorView& value) {
  DT_ASSIGN_OR_RETURN(const size_t s, data_->states.Find(name));
  const TensorView state = data_->states.View(s);
  if (value.dtype != state.dtype || !std::equal(value.shape().begin(), value.shape().end(), state.shape().begin(), state.shape().end()))
    return InvalidArgument("state '", name, "' is ", state.type().ToString(), ", the value to write is ", value.type().ToString());
  if (state.nbytes() > 0) std::memmove(state.data, value.data, state.nbytes());
  return OkStatus();
}
Status Instance::ResetState(std::string_view name) {
  DT_ASSIGN_OR_RETURN(const size_t s, data_->states.Find(name));
  data_->states.Reset(s);
  return OkStatus();
}
void Instance::ResetStates() {
  for (size_t s = 0; s < data_->program->states.size(); ++s) data_->states.Reset(s);
}
Status Instance::RewindState(std::string_view name, size_t dim, int64_t position) {
  DT_ASSIGN_OR_RETURN(const size_t s, data_->states.Find(name));
  const TensorView state = data_->states.View(s);
  if (dim >= state.rank) return OutOfRange("state '", name, "' of rank ", state.rank, " has no dimension ", dim);
  if (position < 0 || position > state.sizes[dim])
    return OutOfRange("state '", name, "' cannot be rewound to position ", position, "; dimension ", dim, " has size ", state.sizes[dim]);
  const size_t inner = static_cast<size_t>(state.stride(dim)) * ByteSize(state.dtype), row = inner * static_cast<size_t>(state.sizes[dim]);
  for (size_t start = 0; row > 0 && start < state.nbytes(); start += row)
    data_->states.ResetBytes(s, start + static_cast<size_t>(position) * inner, start + row);
  return OkStatus();
}
std::vector<std::byte> Instance::SaveStates() const { return data_->states.Save(); }
Status Instance::LoadStates(std::span<const std::byte> bytes) { return data_->states.Load(bytes); }

Method::Method(std::unique_ptr<MethodImpl> impl) : impl_(std::move(impl)) {}
Method::~Method() = default;
const MethodInfo& Method::info() const { return impl_->info(); }
Status Method::Execute(std::span<const TensorView> inputs) { return RunMethod(impl_.get(), inputs); }
std::span<const TensorView> Method::outputs() const { return impl_->outputs; }

}  // namespace dovetail
