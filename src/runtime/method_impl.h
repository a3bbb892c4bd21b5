// One loaded method: its values, its instructions bound to code, and its memory.
//
// Loading (method_load.cc) goes bind -> place, so that running (method_run.cc) checks nothing but shapes, and those
// only when they change: each kernel call keeps the shapes it was last inferred for.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime/aligned_buffer.h"
#include "runtime/input_check.h"
#include "runtime/operators.h"
#include "runtime/profiler.h"
#include "runtime/program_data.h"
#include "runtime/state_buffers.h"
#include "runtime/values.h"

namespace dovetail {

struct InstanceData;

// An attribute, or element `element` of a list of ints (else -1), that follows a computed number.
struct AttrSource {
  uint32_t attr;
  int32_t element;
  uint32_t value;
};

struct KernelStep {
  KernelEntry op;
  std::vector<int32_t> operands;  // tensors; -1: absent
  std::vector<uint32_t> outputs;  // tensors
  int32_t result_view = -1;       // a tensor that becomes a view of operand 0: the value an in-place operator returns
  std::vector<Attr> attrs;
  std::vector<AttrSource> computed;
  // What the kernel gets, kept between calls; the shapes in them are those that inference last ran for.
  std::vector<TensorView> in_views, out_views;
  size_t scratch_bytes = 0;
  bool inferred = false;
  bool looks_up_table = false;  // RunTableLookup runs it
  int64_t rows_looked_up = 0;   // since pages of the table were let go
  bool empty = false;  // every output is: there is nothing to compute, however large the sizes beside the 0 are
};

struct PrimStep {
  Prim prim;
  std::vector<uint32_t> arguments;  // values
  uint32_t result = 0;              // value
};

struct MoveStep {
  uint32_t from = 0, to = 0;  // values of one kind
};

struct JumpStep {
  uint32_t condition = 0, destination = 0;
};

struct DelegateStep {
  std::unique_ptr<Delegate> delegate;
  uint32_t index = 0;             // in the plan's delegates
  size_t num_inputs = 0;
  std::vector<uint32_t> arguments;  // tensors, inputs first
  std::vector<TensorView> views;
};

// monostate: nothing to do (Free).
using Step = std::variant<std::monostate, KernelStep, PrimStep, MoveStep, JumpStep, DelegateStep>;

struct MethodImpl {
  const ProgramData* program = nullptr;
  size_t index = 0;  // of the method
  InstanceData* instance = nullptr;

  DelegateSlots shared;  // outlives the delegates in `steps`
  ValueTable table;
  std::vector<Step> steps;  // one per instruction
  std::vector<std::string> step_names;
  InputCheck inputs;
  std::vector<AlignedBuffer> arenas;  // by memory id
  std::vector<AlignedBuffer> owned;   // by tensor, of those with Storage::kOwned
  AlignedBuffer scratch;
  std::vector<TensorType> operand_types, result_types;  // room for inference
  std::vector<TensorView> outputs;

  const MethodInfo& info() const { return program->infos[index]; }
  const MethodData& data() const { return program->methods[index]; }
};

struct InstanceData {
  const ProgramData* program = nullptr;
  InstanceOptions options;
  std::unique_ptr<class ThreadPool> threads;
  StateBuffers states;
  size_t memory_left = SIZE_MAX;
  std::vector<std::unique_ptr<Method>> methods;  // by index; null: not loaded
  InstanceData();
  ~InstanceData();
};

// Binding: instruction by instruction, what runs it and on which values.
Status BindInstructions(MethodImpl* m);
// Placement: which memory every tensor has, and that no instruction writes what it must not.
Status PlaceTensors(MethodImpl* m);
Result<std::unique_ptr<MethodImpl>> LoadMethodImpl(InstanceData* instance, size_t index);

Status RunMethod(MethodImpl* m, std::span<const TensorView> inputs);
// Runs the inference of a kernel call for the shapes in in_views and takes what follows: output shapes and scratch.
Status InferStep(MethodImpl* m, KernelStep* step);

// Marks the steps that look up rows of a large table in the program's file (table_lookup.cc); after placement.
void FindTableLookups(MethodImpl* m);
Status RunTableLookup(MethodImpl* m, KernelStep* step, const KernelContext& context);

// "instruction 12: aten::add.out in method 'forward'"
std::string DescribeStep(const MethodImpl& m, size_t step);
std::string SourceOfStep(const MethodImpl& m, size_t step);
// Describes an instruction, after it ran, to the profiler that has just recorded it.
void DescribeWork(const MethodImpl& m, size_t step, Profiler* profiler);

}  // namespace dovetail
