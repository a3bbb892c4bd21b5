#include "backends/xnnpack/delegate/delegate.h"

#include <xnnpack.h>

#include <algorithm>
#include <array>

#include "backends/xnnpack/delegate/allocator.h"
#include "backends/xnnpack/delegate/define_graph.h"
#include "backends/xnnpack/delegate/node_profile.h"
#include "backends/xnnpack/delegate/weights_cache.h"
#include "format/xnnpack_blob.h"

namespace dovetail {
namespace {

// Scratch memory of a Method's delegates, which run one after another.
class Workspace final : public DelegateShared {
 public:
  ~Workspace() override {
    if (handle) xnn_release_workspace(handle);
  }
  xnn_workspace_t handle = nullptr;
  // Counts the times it may have moved. The operators of a runtime hold addresses in it, so a runtime set up before must be again.
  uint64_t generation = 0;
};

class XnnpackDelegate final : public Delegate {
 public:
  static Result<std::unique_ptr<Delegate>> Create(const DelegateInitContext& ctx);
  Status Execute(std::span<const TensorView> inputs, std::span<TensorView> outputs) override;

 private:
  // What the graph was last reshaped to and set up with.
  struct Argument {
    XnnExternal external;
    std::array<size_t, XNN_MAX_TENSOR_DIMS> dims{};
    size_t rank = 0;
  };

  Status CheckArguments(const DelegateInitContext& ctx);
  Status Reshape(size_t input, std::span<const int64_t> sizes);
  Status ReshapeRuntime();
  static Status Failed(std::string_view what, xnn_status status) {
    return Internal(kXnnpackDelegateId, ": ", what, " failed: ", XnnStatusText(status));
  }

  std::unique_ptr<DelegateShared> own_workspace_;  // if the Method shares none
  std::unique_ptr<DelegateShared> own_weights_;    // if the Program shares none
  Workspace* workspace_ = nullptr;
  WeightsCache* weights_ = nullptr;
  RuntimePtr runtime_;
  std::vector<Argument> inputs_, outputs_;
  std::vector<xnn_external_value> pointers_;  // inputs, then outputs
  std::vector<size_t> capacity_;              // of outputs, in bytes
  uint64_t generation_ = 0;
  bool reshape_ = true, set_up_ = false;
  std::unique_ptr<NodeProfile> profile_;  // null: nobody wants the times of nodes
};

template <class T, class... Args>
T* SharedOr(std::unique_ptr<DelegateShared>* slot, std::unique_ptr<DelegateShared>& own, Args... args) {
  std::unique_ptr<DelegateShared>& holder = slot ? *slot : own;
  if (!holder) holder = std::make_unique<T>(args...);
  return static_cast<T*>(holder.get());  // the slot is this backend's own
}

Status CheckConstants(const DelegateInitContext& ctx, const std::vector<std::span<const std::byte>>& constants) {
  for (std::span<const std::byte> bytes : constants)
    if (ctx.check) DT_RETURN_IF_ERROR(ctx.check(bytes));
  return OkStatus();
}

Result<std::unique_ptr<Delegate>> XnnpackDelegate::Create(const DelegateInitContext& ctx) {
  const std::string name = kXnnpackDelegateId;
  DT_RETURN_IF_ERROR(InitializeXnnpack());
  DT_ASSIGN_OR_RETURN(const XnnpackBlob blob, ReadXnnpackBlob(ctx.payload, name));
  auto self = std::make_unique<XnnpackDelegate>();
  self->workspace_ = SharedOr<Workspace>(ctx.method_shared, self->own_workspace_);
  if (!self->workspace_->handle)
    if (xnn_status s = xnn_create_workspace(&self->workspace_->handle); s != xnn_status_success) return Failed("making a workspace", s);
  WeightsCache* cache = SharedOr<WeightsCache>(ctx.program_shared, self->own_weights_, ctx.program_shared ? ctx.program : nullptr);
  self->weights_ = cache;
  if (cache->damaged()) return Corrupt(name, ": weights of this program were found damaged before");
  DT_ASSIGN_OR_RETURN(DefinedGraph graph, DefineGraph(blob, ctx, cache, name));
  xnn_runtime_t runtime = nullptr;
  const uint64_t packed_before = cache->packed().statistics().packed;
  const xnn_status s = xnn_create_runtime_v4(graph.subgraph.get(), graph.use_cache ? cache->provider() : nullptr, self->workspace_->handle,
                                             ctx.pool, ctx.profiler ? XNN_FLAG_BASIC_PROFILING : 0, &runtime);
  if (s != xnn_status_success) return Unsupported(name, ": XNNPACK cannot make its operators for this graph: ", XnnStatusText(s));
  self->runtime_.reset(runtime);
  // Packed weights that were found were checked when they were packed.
  const bool packed = !graph.use_cache || cache->packed().statistics().packed > packed_before;
  if (Status s = CheckConstants(ctx, packed ? graph.named : graph.kept); !s.ok()) {
    cache->Refuse();
    return s;
  }
  if (ctx.profiler) {
    DT_ASSIGN_OR_RETURN(self->profile_, NodeProfile::Create(*blob.graph, runtime, ctx.profiler));
  }
  if (ctx.release)
    for (std::span<const std::byte> bytes : graph.packed) ctx.release(bytes);
  cache->AddSources(graph.packed);

  const auto by_id = [](const XnnExternal& a, const XnnExternal& b) { return a.id < b.id; };
  std::sort(graph.inputs.begin(), graph.inputs.end(), by_id);
  std::sort(graph.outputs.begin(), graph.outputs.end(), by_id);
  for (const XnnExternal& e : graph.inputs) self->inputs_.push_back({e});
  for (const XnnExternal& e : graph.outputs) self->outputs_.push_back({e});
  DT_RETURN_IF_ERROR(self->CheckArguments(ctx));
  for (Argument& a : self->inputs_) self->pointers_.push_back({a.external.id, nullptr});
  for (Argument& a : self->outputs_) self->pointers_.push_back({a.external.id, nullptr});
  for (size_t i = 0; i < self->inputs_.size(); ++i) DT_RETURN_IF_ERROR(self->Reshape(i, self->inputs_[i].external.bounds.shape()));
  DT_RETURN_IF_ERROR(self->ReshapeRuntime());
  return std::unique_ptr<Delegate>(std::move(self));
}

// Takes the bounds of arguments from the program where it has them: a blob of ExecuTorch's may hold sizes of the example inputs.
Status XnnpackDelegate::CheckArguments(const DelegateInitContext& ctx) {
  for (std::vector<Argument>* side : {&inputs_, &outputs_}) {
    for (Argument& a : *side) {
      if (!ctx.arguments.empty()) {
        if (a.external.id >= ctx.arguments.size() || (a.external.id < ctx.num_inputs) == a.external.output)
          return Corrupt(kXnnpackDelegateId, ": the graph's ", a.external.output ? "output" : "input", " ", a.external.id,
                         " is none of the call's arguments");
        const TensorView& t = ctx.arguments[a.external.id];
        if (t.dtype != a.external.dtype)
          return Unsupported(kXnnpackDelegateId, ": argument ", a.external.id, " is ", Name(t.dtype), ", but the graph has ",
                             Name(a.external.dtype));
        a.external.bounds = t;
      }
      if (a.external.bounds.rank > XNN_MAX_TENSOR_DIMS)
        return Unsupported(kXnnpackDelegateId, ": argument ", a.external.id, " has ", a.external.bounds.rank, " dims");
      if (a.external.output) capacity_.push_back(a.external.bounds.nbytes());
    }
  }
  return OkStatus();
}

Status XnnpackDelegate::Reshape(size_t input, std::span<const int64_t> sizes) {
  Argument& a = inputs_[input];
  if (sizes.size() != a.external.bounds.rank)
    return InvalidArgument(kXnnpackDelegateId, ": argument ", a.external.id, " has ", sizes.size(), " dims, but the graph was made for ",
                           a.external.bounds.rank);
  if (!reshape_ && sizes.size() == a.rank &&
      std::equal(sizes.begin(), sizes.end(), a.dims.begin(), [](int64_t x, size_t y) { return static_cast<size_t>(x) == y; }))
    return OkStatus();
  set_up_ = false;
  reshape_ = true;  // also when this fails half way
  a.rank = sizes.size();
  for (size_t i = 0; i < a.rank; ++i) {
    if (sizes[i] > a.external.bounds.sizes[i])
      return OutOfRange(kXnnpackDelegateId, ": dim ", i, " of argument ", a.external.id, " is ", sizes[i], "; at most ",
                        a.external.bounds.sizes[i]);
    a.dims[i] = static_cast<size_t>(sizes[i]);
  }
  const xnn_status s = xnn_reshape_external_value(runtime_.get(), a.external.id, a.rank, a.dims.data());
  return s == xnn_status_success ? OkStatus() : Failed("setting the size of an input", s);
}

Status XnnpackDelegate::ReshapeRuntime() {
  // Until it succeeds, the next call must do it again.
  const uint64_t before = GetXnnpackMemory().requests;
  if (xnn_status s = xnn_reshape_runtime(runtime_.get()); s != xnn_status_success)
    return Failed("fitting the graph to these input sizes", s);
  if (GetXnnpackMemory().requests != before) ++workspace_->generation;
  for (Argument& a : outputs_) {
    if (xnn_status s = xnn_get_external_value_shape(runtime_.get(), a.external.id, &a.rank, a.dims.data()); s != xnn_status_success)
      return Failed("asking for the size of an output", s);
  }
  reshape_ = false;
  return OkStatus();
}

Status XnnpackDelegate::Execute(std::span<const TensorView> inputs, std::span<TensorView> outputs) {
  weights_->packed().BeforeCall();
  const size_t count = inputs.size() + outputs.size();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const XnnExternal& e = inputs_[i].external;
    if (e.id >= inputs.size())
      return InvalidArgument(kXnnpackDelegateId, ": the call has ", inputs.size(), " inputs, but the graph reads input ", e.id);
    const TensorView& t = inputs[e.id];
    if (t.dtype != e.dtype) return InvalidArgument(kXnnpackDelegateId, ": input ", e.id, " is ", Name(t.dtype), ", not ", Name(e.dtype));
    DT_RETURN_IF_ERROR(Reshape(i, t.shape()));
  }
  if (reshape_) DT_RETURN_IF_ERROR(ReshapeRuntime());
  bool set_up = set_up_ && generation_ == workspace_->generation;
  const auto point = [&](size_t at, void* data) {
    if (pointers_[at].data == data) return;
    pointers_[at].data = data;
    set_up = false;
  };
  for (size_t i = 0; i < inputs_.size(); ++i) point(i, inputs[inputs_[i].external.id].data);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Argument& a = outputs_[i];
    if (a.external.id < inputs.size() || a.external.id >= count)
      return InvalidArgument(kXnnpackDelegateId, ": the call has ", count, " arguments, but the graph writes argument ", a.external.id);
    TensorView& t = outputs[a.external.id - inputs.size()];
    if (t.dtype != a.external.dtype)
      return InvalidArgument(kXnnpackDelegateId, ": argument ", a.external.id, " is ", Name(t.dtype), ", not ", Name(a.external.dtype));
    size_t bytes = ByteSize(t.dtype);
    for (size_t d = 0; d < a.rank; ++d) bytes *= a.dims[d];
    if (bytes > capacity_[i])
      return OutOfRange(kXnnpackDelegateId, ": argument ", a.external.id, " becomes ", bytes, " bytes, but has memory for ", capacity_[i]);
    // A tensor without dims stands as one dim of 1 in blobs of ExecuTorch's.
    if (!(a.external.bounds.rank == 0 && bytes == ByteSize(t.dtype))) {
      t.rank = static_cast<uint8_t>(a.rank);
      for (size_t d = 0; d < a.rank; ++d) t.sizes[d] = static_cast<int64_t>(a.dims[d]);
    } else {
      t.rank = 0;
    }
    point(inputs_.size() + i, t.data);
  }
  if (!set_up) {
    set_up_ = false;
    if (xnn_status s = xnn_setup_runtime_v2(runtime_.get(), pointers_.size(), pointers_.data()); s != xnn_status_success)
      return Failed("giving the graph its arguments", s);
    set_up_ = true;
    generation_ = workspace_->generation;
  }
  const int64_t start = profile_ ? Profiler::Now() : 0;
  if (xnn_status s = xnn_invoke_runtime(runtime_.get()); s != xnn_status_success) return Failed("running the graph", s);
  if (!profile_) return OkStatus();
  return profile_->Record(runtime_.get(), start, [this](uint32_t id) -> std::span<const size_t> {
    for (const Argument& a : inputs_)
      if (a.external.id == id) return {a.dims.data(), a.rank};
    return {};
  });
}

Result<size_t> NumInputs(const DelegateInitContext& ctx) {
  DT_ASSIGN_OR_RETURN(const XnnpackBlob blob, ReadXnnpackBlob(ctx.payload, kXnnpackDelegateId));
  return blob.graph->input_ids() ? size_t{blob.graph->input_ids()->size()} : size_t{0};
}

}  // namespace

const DelegateEntry kXnnpackDelegate = {kXnnpackDelegateId, XnnpackDelegate::Create, NumInputs};

}  // namespace dovetail
