// Functionalization: the tensors of an exported program, which share memory and are written in place, as values of the IR.
//
// A Storage is a piece of memory: a temporary, a graph input, or a tensor of the file. A Tensor of the program is its storage seen
// through a chain of views (slice, permute, ...). Read gives the value of a tensor at this point of the program, made from the value
// of its storage if that was written since. Write goes the other way: it gives the storage the value in which the part that the tensor
// views is replaced. Storages of the file become constants, or states if anything writes them; a state is read at most once and
// written at most once, with its last value.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "import/archive.h"
#include "ir/builder.h"

namespace dovetail::pt2 {

using TensorId = uint32_t;

// How a view is made of its parent: an operator of the IR with one tensor operand, or index_select with indices that follow each other.
struct ViewStep {
  OpId op = OpId::kView;
  std::vector<Attr> attrs;
  ValueId index = kNone;
};

class AliasTable {
 public:
  AliasTable(Module& module, Graph& graph, Builder& builder) : module_(module), graph_(graph), builder_(builder) {}

  TensorId AddTemporary(ValueId value, bool is_complex = false);
  TensorId AddInput(ValueId value);
  // Tensors of the file that are the same view of the same storage are one tensor.
  Result<TensorId> AddStored(std::string_view name, const StoredTensor& stored);
  Result<TensorId> AddView(TensorId parent, ViewStep step);

  // The physical type: that of a complex tensor has the dimension of size 2 at its end.
  const TensorType& type(TensorId t) const { return tensors_[t].type; }
  bool is_complex(TensorId t) const { return tensors_[t].is_complex; }
  // For view_as_real and view_as_complex: the same memory under another name.
  TensorId AsComplex(TensorId t, bool is_complex);

  Result<ValueId> Read(TensorId t);
  // `value` has the tensor's type.
  Status Write(TensorId t, ValueId value);
  // Names the value of `t` when it is first read.
  void SetName(TensorId t, std::string_view name, uint32_t location);
  // The node that further writes come from, for messages of Finish; kept by reference.
  void SetWriter(const FxNode* node) { writer_ = node; }
  // Says that the contents of the constant behind `v` went into the program, so it must not be written later.
  void MarkFolded(ValueId v);

  // At the end: makes states of the storages that were written, with their state.write, and drops constants that nothing uses.
  // Fails when a state shares memory with another tensor in a way that has no meaning in the IR. Graph outputs are set before.
  Status Finish();
  // The inputs that were written, in order.
  std::vector<TensorId> WrittenInputs() const;
  const std::string& InputName(TensorId t) const { return graph_.value(storages_[tensors_[t].storage].initial).name; }

 private:
  struct Storage {
    enum Kind : uint8_t { kTemporary, kInput, kStored } kind = kTemporary;
    ValueId value = kNone;    // current contents
    ValueId initial = kNone;  // of an input, and of a stored one that was read
    uint32_t version = 0;     // number of writes
    TensorId root = kNone;
    uint32_t constant = kNone;  // of a stored one that was read: its constant
    std::string name;
    const StoredTensor* stored = nullptr;
    const FxNode* writer = nullptr;  // of the last write
    uint32_t written_at = kNone;     // its location
    bool folded = false;
  };
  struct Tensor {
    uint32_t storage = 0;
    TensorId parent = kNone;  // kNone for the whole storage
    ViewStep step;
    TensorType type;
    ValueId value = kNone;  // when the storage had `version`
    uint32_t version = 0;
    uint32_t location = kNone;
    std::string_view name;
    bool is_complex = false;
    uint32_t depth = 0;
  };

  TensorId Add(Storage storage, TensorType type, bool is_complex);
  Result<Constant> MakeStoredConstant(const Storage& s, const Tensor& root) const;
  Result<ValueId> ReadStored(Storage& s);
  Result<ValueId> Scatter(const Tensor& t, ValueId value);
  Status CheckOverlap(const Storage& written) const;
  Status MakeStates();
  void DropUnusedConstants();

  Module& module_;
  Graph& graph_;
  Builder& builder_;
  const FxNode* writer_ = nullptr;
  std::vector<Storage> storages_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string, TensorId> stored_;  // by view of a storage of the file
};

}  // namespace dovetail::pt2
