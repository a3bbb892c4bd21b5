// Embedding tables that stay in the program's file. Where a row is read, the kernel maps the 16 pages around it, so that the rows of a long prompt would keep
// far more of a table in memory than is read: 8 MB for 128 tokens. They are looked up a few at a time, and the pages let go.
#include <algorithm>
#include <array>

#include "runtime/method_impl.h"

namespace dovetail {
namespace {

constexpr size_t kMinTableBytes = size_t{1} << 20;
constexpr int64_t kRowsAtOnce = 32;

void ReleaseTables(const MethodImpl& m, KernelStep* step) {
  for (size_t i = 0; i + 1 < step->in_views.size(); ++i) m.program->file->Release({step->in_views[i].as<const std::byte>(), step->in_views[i].nbytes()});
  step->rows_looked_up = 0;
}

}  // namespace

void FindTableLookups(MethodImpl* m) {
  // A program without states may look up as many rows in each call, and would only map the same pages again.
  if (!m->program->file || m->program->states.empty()) return;
  for (Step& s : m->steps) {
    auto* step = std::get_if<KernelStep>(&s);
    if (!step || (step->op.def != &GetOp(OpId::kEmbedding) && step->op.def != &GetOp(OpId::kQuantizedEmbedding)) || step->operands[0] < 0) continue;
    const Tensor& table = m->table.tensors[static_cast<size_t>(step->operands[0])];
    step->looks_up_table = table.storage == Storage::kConstant && table.view.nbytes() >= kMinTableBytes;
  }
}

Status RunTableLookup(MethodImpl* m, KernelStep* step, const KernelContext& context) {
  TensorView &indices = step->in_views.back(), &out = step->out_views[0];
  const TensorView all_indices = indices, all_out = out;
  const int64_t rows = all_indices.numel(), columns = all_out.sizes[all_out.rank - 1u];
  Status status = OkStatus();
  for (int64_t begin = 0; begin < rows && status.ok(); begin += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - begin);
    indices = TensorView(all_indices.dtype, std::array{count}, all_indices.as<std::byte>() + begin * static_cast<int64_t>(ByteSize(all_indices.dtype)));
    out = TensorView(all_out.dtype, std::array{count, columns}, all_out.as<std::byte>() + begin * columns * static_cast<int64_t>(ByteSize(all_out.dtype)));
    status = step->op.run(context);
    step->rows_looked_up += count;
    if (step->rows_looked_up >= kRowsAtOnce) ReleaseTables(*m, step);
  }
  indices = all_indices;
  out = all_out;
  return status;
}

}  // namespace dovetail
