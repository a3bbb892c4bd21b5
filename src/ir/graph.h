// The IR: a Module of named Graphs, constants and states. A Graph is a list of Nodes in execution order over tensor Values.
//
// Values and nodes are handles into arenas of their Graph; handles stay valid until Compact(). There is one concrete Node and no
// subclass. State is touched only by state.read and state.write nodes, so nothing that takes values can reach it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "core/tensor_type.h"
#include "core/tensor_view.h"
#include "ops/op_def.h"

namespace dovetail {

using ValueId = uint32_t;
using NodeId = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;  // no value (an absent optional operand), no node, no reference

class Graph;

// What comes after what: each form is a row of the verifier's rule table (verifier.h).
enum class Form : uint8_t { kFunctional, kCore, kQuantized, kPartitioned, kPlanned };

// A nested graph of a `delegate` node. Operand i of the node is input i of the body, result i is output i. aliases[i] is the
// operand whose memory result i updates in place (a caller's state), or -1.
struct Region {
  std::string backend;
  std::unique_ptr<Graph> body;
  std::vector<int> aliases;
};

struct Node {
  OpId op = OpId::kCount;
  std::vector<ValueId> operands;  // tensor arguments in schema order, lists in place; kNone for an absent optional one
  std::vector<Attr> attrs;        // the other arguments in schema order, defaults filled in
  std::vector<ValueId> results;
  uint32_t ref = kNone;           // const: index of a constant; state.read, state.write: index of a state
  uint32_t location = kNone;      // index into Module::locations
  std::unique_ptr<Region> region; // delegate only
};

struct Value {
  TensorType type;
  std::string name;        // without '%'; empty: printed as a number
  NodeId producer = kNone; // kNone for a graph input
  uint32_t result = 0;     // which result of the producer
};

// Where a node comes from.
struct Location {
  std::string source;       // "model.py:12, in forward: x = x + 1"
  std::string module_path;  // "layers.0.self_attn.q_proj"
  std::vector<std::string> folded;  // module paths of what was folded into the node: its batch norm
};

// A constant tensor: a strided view of bytes that live elsewhere (a mapped file kept by the Module) or that it owns, possibly to be
// converted to another dtype when it is streamed out, or a recipe that makes the bytes. Nothing is copied or made until CopyTo.
struct Constant {
  std::string name;
  TensorType type;                    // what a reader gets: constant dims
  DType stored = DType::kNone;        // dtype of the bytes
  std::span<const std::byte> storage; // the whole storage; empty with data_known false
  std::vector<int64_t> strides;       // in elements, one per dim
  int64_t offset = 0;                 // in elements
  bool data_known = true;             // false: declared `external` in a text form
  std::shared_ptr<const std::vector<std::byte>> owned;
  std::shared_ptr<const std::function<void(std::byte*)>> recipe;  // writes nbytes() bytes, always the same; storage is empty

  // What is alike for constants of the same bytes and layout (tied weights): the start of the storage, or the recipe.
  const void* identity() const { return recipe ? static_cast<const void*>(recipe.get()) : storage.data() + static_cast<size_t>(offset) * ByteSize(stored); }
  bool contiguous() const;            // plain bytes of the right dtype: bytes() may be used as they are
  std::span<const std::byte> bytes() const;
  size_t nbytes() const { return static_cast<size_t>(type.shape.numel().value()) * ByteSize(type.dtype); }
  // Writes nbytes() bytes, row-major. The bounds of the view were checked by MakeConstant.
  void CopyTo(std::byte* destination) const;
};
// Checks that the view stays inside `storage`.
Result<Constant> MakeConstant(std::string name, TensorType type, DType stored, std::span<const std::byte> storage,
                              std::vector<int64_t> strides, int64_t offset);
// Owns a copy of `data`, row-major.
Constant MakeOwnedConstant(std::string name, TensorType type, std::vector<std::byte> data);
// Made when it is streamed out.
Constant MakeRecipeConstant(std::string name, TensorType type, std::function<void(std::byte*)> recipe);

// A mutable tensor that lives between calls. `initial` is what it holds after loading (its name is the state's).
struct State {
  std::string name;
  TensorType type;
  Constant initial;
};

class Graph {
 public:
  explicit Graph(std::string name) : name(std::move(name)) {}

  std::string name;
  std::vector<ValueId> inputs, outputs;
  std::vector<std::string> output_names;  // as many as outputs, or empty
  std::vector<NodeId> order;              // execution order; a node not in it is dead

  Node& node(NodeId id) { return nodes_[id]; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  Value& value(ValueId id) { return values_[id]; }
  const Value& value(ValueId id) const { return values_[id]; }
  const TensorType& type(ValueId id) const { return values_[id].type; }
  size_t num_values() const { return values_.size(); }
  size_t num_nodes() const { return nodes_.size(); }

  ValueId AddInput(std::string input_name, TensorType type);
  // A node without results and not yet in `order`.
  NodeId AddNode(OpId op);
  // The same of a node that may be another graph's, with these operands; its region is not copied.
  NodeId AddCopy(const Node& node, std::vector<ValueId> operands);
  ValueId AddResult(NodeId node, TensorType type, std::string result_name = {});
  // The node that makes `v`, or null for an input.
  const Node* producer(ValueId v) const { return values_[v].producer == kNone ? nullptr : &nodes_[values_[v].producer]; }
  // The producer if it is this operator, else null.
  const Node* producer_if(ValueId v, OpId op) const;
  // For each value, how many times it is an operand of a node in `order` or a graph output.
  std::vector<uint32_t> CountUses() const;
  // For each value, the nodes in `order` that use it (in order, each once) — outputs do not count.
  std::vector<std::vector<NodeId>> Users() const;
  // Every operand and output `from` becomes `to`.
  void ReplaceUses(ValueId from, ValueId to);
  // Drops nodes whose results nobody uses and that write no state.
  void RemoveDeadNodes();

 private:
  std::vector<Node> nodes_;
  std::vector<Value> values_;
};

struct Module {
  std::vector<std::unique_ptr<Graph>> graphs;  // named; the methods of the program
  std::vector<Constant> constants;
  std::vector<State> states;
  SymbolRanges symbols;                        // of every symbol in a shape
  std::vector<Location> locations;
  std::vector<std::shared_ptr<const MappedFile>> files;  // what constants point into
  std::string source_file;                     // for messages
  Form form = Form::kFunctional;

  Graph* FindGraph(std::string_view name) const;
  const Location* location(const Node& n) const { return n.location < locations.size() ? &locations[n.location] : nullptr; }
};

// "%7 = linear" and the source line, for Status::At; also of a node that the verifier refuses.
std::string DescribeNode(const Graph& graph, const Node& node);
std::string DescribeSource(const Module& module, const Node& node);

// The attribute of a node by its schema name; it must exist (DT_CHECK).
const Attr& GetAttr(const Node& node, std::string_view name);
// The operand value of a node by its schema name (not of a list), kNone when absent.
ValueId GetOperand(const Node& node, std::string_view name);
// The constant that `v` is, or null.
const Constant* GetConstant(const Module& module, const Graph& graph, ValueId v);
// Whether a permute swaps the last two dims and keeps the others.
bool SwapsLastTwo(const Node& permute);

}  // namespace dovetail
