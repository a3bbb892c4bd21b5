// One node of the exported graph under import: its arguments by name, the means to emit our operators, and its results.
//
// Errors are sticky: the first one stays, everything after it does nothing and returns a harmless default (kNone, 0, an empty type).
// So rules read as straight-line code without checks, and the importer asks once, at the end.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "import/alias.h"

namespace dovetail::pt2 {

// What all nodes of a graph share.
struct ImportContext {
  Module& module;
  Graph& graph;
  Builder& builder;
  const ExportedProgram& program;
  AliasTable& aliases;
  std::unordered_map<std::string_view, TensorId> tensors = {};        // by name; kNone: made by a node that failed
  std::set<std::string, std::less<>> input_symbols = {};              // of the inputs' shapes
  std::map<std::string, ValueId, std::less<>> items = {};             // unbacked symbols: the tensor whose element they are, i64[]
  std::map<std::string, ValueId, std::less<>> numbers = {};           // floats that are a tensor's element, by their names in the file
  std::map<std::string, ValueId> splats = {};                         // constants of one element, by type and value
};

class Call {
 public:
  Call(ImportContext& context, const FxNode& node) : context_(context), node_(node) {}

  const FxNode& node() const { return node_; }
  bool ok() const { return status_.ok() && !poisoned_; }
  // An argument comes from a node that failed: nothing new to report.
  bool poisoned() const { return poisoned_; }
  Status TakeStatus() { return std::move(status_); }
  void Fail(Status status);

  // Arguments by name. `Has` is false for an absent one and for None.
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  const Arg* Find(std::string_view name) const;
  // With Require, an absent argument is an error.
  TensorId Handle(std::string_view name);
  ValueId Tensor(std::string_view name);          // refuses complex numbers
  ValueId OptionalTensor(std::string_view name);  // kNone when absent
  std::vector<TensorId> Handles(std::string_view name);
  std::vector<ValueId> Tensors(std::string_view name);  // kNone for absent items
  bool IsTensor(std::string_view name) const;
  int64_t Int(std::string_view name, std::optional<int64_t> otherwise = std::nullopt);
  Dim SymInt(std::string_view name, std::optional<Dim> otherwise = std::nullopt);
  // The same, and it may be the element of a tensor (ImportContext::items).
  Dim SymIntOrItem(std::string_view name, std::optional<Dim> otherwise = std::nullopt);
  std::vector<int64_t> Ints(std::string_view name, std::vector<int64_t> otherwise);
  std::vector<Dim> SymInts(std::string_view name);
  double Float(std::string_view name, std::optional<double> otherwise = std::nullopt);
  bool Bool(std::string_view name, bool otherwise);
  std::string_view String(std::string_view name, std::string_view otherwise);
  // bool, Dim or double; None when absent.
  Attr Scalar(std::string_view name);
  DType Type(std::string_view name, DType otherwise);
  // The symbol of ImportContext::items in `d`, empty when there is none.
  std::string ItemSymbol(Dim d) const;
  // Fails for a Dim with a symbol that no input gives.
  bool CheckDim(Dim d);

  // Types. Of kNone: an empty one.
  const TensorType& type(ValueId v) const;
  const Shape& shape(ValueId v) const { return type(v).shape; }
  const TensorType& handle_type(TensorId t) const;
  bool is_complex(TensorId t) const { return t != kNone && context_.aliases.is_complex(t); }
  // Shape as the user sees it: without a complex tensor's last dimension.
  Shape LogicalShape(TensorId t) const;
  size_t Axis(int64_t axis, size_t rank);

  // Values.
  ValueId Read(TensorId t);  // also of a complex tensor, with its last dimension
  ValueId Emit(OpId op, std::vector<ValueId> operands, NamedAttrs attrs = {});
  std::vector<ValueId> EmitAll(OpId op, std::vector<ValueId> operands, NamedAttrs attrs = {});
  std::vector<ValueId> EmitWith(OpId op, std::vector<ValueId> operands, std::vector<Attr> attrs, size_t results);
  ValueId Convert(ValueId v, DType dtype);  // no node when it has that type
  ValueId Expand(ValueId v, const Shape& shape);
  ValueId Reshape(ValueId v, std::vector<Dim> sizes);
  // A Scalar as a tensor of rank 0; a symbolic one, also one that is a tensor's element.
  ValueId ScalarTensor(const Attr& value, DType dtype);
  // An argument that is a number, or a tensor, or the element of one: as a tensor of `dtype`; of rank 0 unless it is a tensor.
  ValueId Number(std::string_view name, DType dtype);
  // An operator of two operands that must have one dtype: `dtype`, or the promoted one.
  ValueId Binary(OpId op, ValueId a, ValueId b, DType dtype = DType::kNone);
  const Constant* GetConstant(ValueId v) const;
  const Node* Producer(ValueId v) const { return v == kNone ? nullptr : context_.graph.producer(v); }
  ValueId AddConst(std::string name, TensorType type, std::vector<std::byte> data) {
    return context_.builder.AddConst(std::move(name), std::move(type), std::move(data));
  }
  // Says that what is computed of the constant's contents is now a part of the program.
  void MarkFolded(ValueId v) { context_.aliases.MarkFolded(v); }

  // Views of tensors: they share memory.
  TensorId View(TensorId t, OpId op, NamedAttrs attrs);
  TensorId ViewSizes(TensorId t, std::vector<Dim> logical_sizes);
  TensorId ViewPermuted(TensorId t, std::vector<Dim> logical_dims);
  TensorId ViewSlice(TensorId t, size_t dim, Dim start, Dim length, int64_t step = 1);  // start may hold an item
  TensorId AsComplex(TensorId t, bool is_complex);

  // Results, in order: of the i-th call for the i-th output of the node.
  void Return(ValueId v, bool is_complex = false);
  void Return(const std::vector<ValueId>& values);
  void ReturnView(TensorId t);
  // For an operator in place: writes the result to the argument `name`, in its dtype, and returns that instead.
  void WriteResultTo(std::string_view name);
  // The same for a value: broadcast and converted.
  void Write(TensorId t, ValueId value);
  // The node's first output as recorded, if it is; for sizes of -1.
  std::optional<TensorMeta> RecordedOutput() const;
  std::optional<TensorMeta> RecordedArg(std::string_view name) const;
  const std::vector<TensorId>& results() const { return results_; }

 private:
  const Arg* Require(std::string_view name);
  TensorId Lookup(const Arg& arg, std::string_view name);
  Status Wrong(std::string_view name, std::string_view expected);
  std::optional<Dim> DimOf(const Arg& arg, std::string_view name, bool item_allowed);

  ImportContext& context_;
  const FxNode& node_;
  Status status_;
  bool poisoned_ = false, returned_view_ = false;
  std::vector<TensorId> results_;
};

}  // namespace dovetail::pt2
