// What an instruction worked on in the call that ran it last: shapes, bytes and multiply-adds, for the profiler.
#include <algorithm>

#include "ops/attention_args.h"
#include "runtime/method_impl.h"

namespace dovetail {
namespace {

struct Work {
  uint64_t bytes = 0, macs = 0;
};

uint64_t Bytes(const TensorView& t) { return t.present() ? t.nbytes() : 0; }
uint64_t Elements(const TensorView& t) { return static_cast<uint64_t>(t.numel()); }
uint64_t LastDim(const TensorView& t) { return t.rank == 0 ? 1 : static_cast<uint64_t>(t.sizes[t.rank - 1]); }
uint64_t FirstDim(const TensorView& t) { return t.rank == 0 ? 1 : static_cast<uint64_t>(t.sizes[0]); }

uint64_t AllBytes(const KernelContext& c) {
  uint64_t bytes = 0;
  for (const TensorView& t : c.inputs) bytes += Bytes(t);
  for (const TensorView& t : c.outputs) bytes += Bytes(t);
  return bytes;
}

// Keys past the last one that some row attends are not read.
Work AttentionWork(const KernelContext& c, size_t mask, size_t rows_from, size_t rows_to) {
  const AttentionArgs a(c, mask);
  int64_t most = 0, pairs = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    const int64_t keys = std::max<int64_t>(0, a.KeysOf(row));
    most = std::max(most, keys);
    pairs += keys;
  }
  Work w{AllBytes(c), static_cast<uint64_t>(a.batch * a.heads * pairs * (a.width + a.value_width))};
  for (size_t i = rows_from; i < rows_to && a.keys > 0; ++i)
    w.bytes -= Bytes(c.in(i)) - Bytes(c.in(i)) / static_cast<uint64_t>(a.keys) * static_cast<uint64_t>(most);
  return w;
}

Work WorkOf(const KernelContext& c, const OpDef* op) {
  const uint64_t all = AllBytes(c), out = Bytes(c.out());
  if (op == &kOpLinear || op == &kOpMatmul || op == &kOpBmm || op == &kOpQuantizedLinear)
    return {all, Elements(c.out()) * LastDim(c.in(0))};
  if (op == &kOpConvolution || op == &kOpQuantizedConvolution) {
    const TensorView& weight = c.in(op == &kOpConvolution ? 1 : 3);
    const bool transposed = op == &kOpConvolution && c.attr(3).Bool();
    const uint64_t taps = Elements(weight) / std::max<uint64_t>(1, FirstDim(weight));
    return {all, Elements(transposed ? c.in(0) : c.out()) * taps};
  }
  if (op == &kOpAttention) return AttentionWork(c, 3, 1, 3);
  if (op == &kOpQuantizedAttention) return AttentionWork(c, 5, 1, 5);
  // Each step multiplies the state by the weight.
  if (op == &kOpLstmScan || op == &kOpGruScan) return {all, Elements(c.in(0)) * LastDim(c.in(1))};
  if (op == &kOpEmbedding || op == &kOpQuantizedEmbedding) {
    const size_t at = op == &kOpEmbedding ? 1 : 2;
    uint64_t row = 0;
    for (size_t i = 0; i < at; ++i) row += Bytes(c.in(i)) / std::max<uint64_t>(1, FirstDim(c.in(0)));
    return {row * Elements(c.in(at)) + Bytes(c.in(at)) + out, 0};
  }
  // Those that read as much of the first operand as they write.
  if (op == &kOpIndex || op == &kOpIndexSelect || op == &kOpSlice) return {all - Bytes(c.in(0)) + out, 0};
  if (op == &kOpIndexPutInplace) return {all - Bytes(c.in(0)) - out + Bytes(c.inputs.back()), 0};
  if (op == &kOpCopy) return {all - Bytes(c.in(0)), 0};
  if ((op->traits & kMetadataOnly) && c.in(0).data == c.out().data) return {};
  return {all, 0};
}

std::string Text(const MethodImpl& m, uint32_t tensor, const TensorView& view) {
  const Tensor& t = m.table.tensors[tensor];
  const Storage storage = t.storage == Storage::kView ? m.table.tensors[t.root].storage : t.storage;
  const char* kind = storage == Storage::kConstant ? "constant " : storage == Storage::kState ? "state " : "";
  return kind + view.type().ToString();
}

void DescribeKernel(const MethodImpl& m, const KernelStep& step, Profiler::Detail& d) {
  for (size_t i = 0; i < step.operands.size(); ++i) {
    if (step.operands[i] < 0) continue;
    const uint32_t tensor = static_cast<uint32_t>(step.operands[i]);
    d.inputs.push_back(Text(m, tensor, step.in_views[i]));
    if (m.table.tensors[tensor].storage == Storage::kConstant) d.constant_bytes += step.in_views[i].nbytes();
  }
  for (size_t r = 0; r < step.outputs.size(); ++r) d.outputs.push_back(Text(m, step.outputs[r], step.out_views[r]));
  const Work work = WorkOf({step.in_views, step.attrs, step.out_views, nullptr, {}}, step.op.def);
  d.bytes = work.bytes;
  d.constant_bytes = std::min(d.constant_bytes, d.bytes);
  d.macs = work.macs;
}

void DescribeDelegate(const MethodImpl& m, const DelegateStep& step, const Profiler& profiler, Profiler::Detail& d) {
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    (i < step.num_inputs ? d.inputs : d.outputs).push_back(Text(m, step.arguments[i], step.views[i]));
    d.bytes += step.views[i].nbytes();
  }
  // Its nodes were recorded right before it.
  const auto events = profiler.events();
  const auto details = profiler.details();
  for (size_t i = events.size() - 1; i-- > 0 && events[i].node != Profiler::kNoNode;) {
    if (i >= details.size()) continue;
    d.constant_bytes += details[i].constant_bytes;
    d.macs += details[i].macs;
  }
  d.bytes += d.constant_bytes;
}

}  // namespace

void DescribeWork(const MethodImpl& m, size_t step, Profiler* profiler) {
  if (profiler->events().empty()) return;
  Profiler::Detail d;
  d.source = SourceOfStep(m, step);
  if (const auto* kernel = std::get_if<KernelStep>(&m.steps[step])) DescribeKernel(m, *kernel, d);
  if (const auto* delegate = std::get_if<DelegateStep>(&m.steps[step])) DescribeDelegate(m, *delegate, *profiler, d);
  if (const auto* move = std::get_if<MoveStep>(&m.steps[step]); move && m.table.values[move->to].kind == ValueKind::kTensor) {
    const uint32_t from = m.table.values[move->from].tensor, to = m.table.values[move->to].tensor;
    d.inputs.push_back(Text(m, from, m.table.tensors[from].view));
    d.outputs.push_back(Text(m, to, m.table.tensors[to].view));
    d.bytes = 2 * m.table.tensors[to].view.nbytes();
  }
  profiler->Describe(std::move(d));
}

}  // namespace dovetail
