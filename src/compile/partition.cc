#include "compile/partition.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"

namespace dovetail {
namespace {

constexpr int kCpu = -1;

class Partitioner {
 public:
  Partitioner(Module& module, Graph& graph, std::span<const Backend* const> backends) : module_(module), graph_(graph), backends_(backends) {}

  Status Run(PartitionReport& report, bool trim) {
    Choose();
    // A component that is not worth a call goes to the cpu, which may change the stages of others. Each round takes nodes from a backend, so
    // there is a last one.
    do ComputeStages();
    while (Demote());
    // What is left of a region may not be worth its call any more.
    if (trim && Trim())
      while (Demote()) ComputeStages();
    Report(report);
    return Rebuild(report);
  }

 private:
  void Choose() {
    kind_.assign(graph_.num_nodes(), kCpu);
    reason_.assign(graph_.num_nodes(), "");
    for (const Backend* b : backends_)
      if (b->look) b->look(module_, graph_);
    for (NodeId id : graph_.order) {
      const Node& n = graph_.node(id);
      if ((GetOp(n.op).traits & kStructural) || FollowsUsers(n)) continue;
      for (size_t b = 0; b < backends_.size(); ++b) {
        if (Status s = backends_[b]->check(module_, graph_, n); s.ok()) {
          kind_[id] = static_cast<int>(b);
          break;
        } else if (reason_[id].empty()) {
          reason_[id] = StrCat(backends_[b]->name, ": ", s.message());
        }
      }
    }
  }

  // Rows of i8 exist only inside a region: each region that uses them makes its own from the float value, once. What is left in the graph
  // serves nodes on the cpu.
  static bool FollowsUsers(const Node& n) { return n.op == OpId::kQuantizeDynamic; }
  // The value that a node at the use of `v` waits for.
  ValueId Source(ValueId v) const {
    const Node* n = v == kNone ? nullptr : graph_.producer(v);
    return n && FollowsUsers(*n) ? n->operands[0] : v;
  }

  // The least stage of a node of that kind: that of its operands, one later where they are of another kind.
  int StageAfterOperands(const Node& n, int kind) const {
    int stage = 0;
    for (ValueId v : n.operands) {
      const ValueId source = kind == kCpu ? v : Source(v);
      if (source == kNone || graph_.value(source).producer == kNone || graph_.producer(source)->op == OpId::kConst) continue;
      const NodeId p = graph_.value(source).producer;
      // What a state holds when the method starts is there from the beginning, as an input is.
      if (graph_.node(p).op == OpId::kStateRead && stage_[p] == 0) continue;
      stage = std::max(stage, kind_[p] == kind ? stage_[p] : stage_[p] + 1);
    }
    return stage;
  }

  void ComputeStages() {
    stage_.assign(graph_.num_nodes(), 0);
    std::unordered_map<uint32_t, NodeId> last_access;  // of a state: its accesses keep their order
    for (NodeId id : graph_.order) {
      const Node& n = graph_.node(id);
      if (n.op == OpId::kConst) continue;
      int stage = StageAfterOperands(n, kind_[id]);
      auto after = [&](NodeId p) { stage = std::max(stage, kind_[p] == kind_[id] ? stage_[p] : stage_[p] + 1); };
      if (n.op == OpId::kStateRead || n.op == OpId::kStateWrite) {
        if (auto it = last_access.find(n.ref); it != last_access.end()) after(it->second);
        last_access[n.ref] = id;
      }
      stage_[id] = stage;
    }
  }

  // Connected components of each (stage, backend); those that are not worthwhile go to the cpu. Whether any did.
  bool Demote() {
    std::vector<NodeId> parent(graph_.num_nodes());
    std::iota(parent.begin(), parent.end(), 0);
    auto find = [&](NodeId x) {
      while (parent[x] != x) x = parent[x] = parent[parent[x]];
      return x;
    };
    std::map<std::tuple<ValueId, int, int>, NodeId> readers;  // one of each backend and stage
    for (NodeId id : graph_.order) {
      if (kind_[id] == kCpu) continue;
      for (ValueId operand : graph_.node(id).operands) {
        const ValueId v = Source(operand);
        if (v == kNone || graph_.producer_if(v, OpId::kConst)) continue;
        const NodeId p = graph_.value(v).producer;
        if (p != kNone && kind_[p] == kind_[id] && stage_[p] == stage_[id]) parent[find(p)] = find(id);
        const NodeId reader = readers.try_emplace({v, kind_[id], stage_[id]}, id).first->second;
        parent[find(reader)] = find(id);  // linears that share an input belong together
      }
    }
    std::map<NodeId, std::vector<NodeId>> components;
    for (NodeId id : graph_.order)
      if (kind_[id] != kCpu) components[find(id)].push_back(id);
    bool demoted = false;
    for (const auto& [root, nodes] : components) {
      const Backend& backend = *backends_[static_cast<size_t>(kind_[nodes[0]])];
      if (backend.worthwhile(module_, graph_, nodes)) continue;
      demoted = true;
      for (NodeId id : nodes) {
        kind_[id] = kCpu;
        reason_[id] = StrCat(backend.name, ": too little work around it for a delegate call of its own");
      }
    }
    return demoted;
  }

  // Takes what is cheaper outside from the borders of regions: chains at their beginnings in order, at their ends in reverse. Whether any was.
  bool Trim() {
    const std::vector<std::vector<NodeId>> users = graph_.Users();
    bool trimmed = false;
    const auto visit = [&](NodeId id) {
      const Node& n = graph_.node(id);
      if (kind_[id] == kCpu) return;
      const Backend& backend = *backends_[static_cast<size_t>(kind_[id])];
      if (!backend.cheaper_outside || !backend.cheaper_outside(graph_, n)) return;
      const int stage = StageAfterOperands(n, kCpu);
      const std::function<bool(ValueId)> fits = [&](ValueId v) {
        return std::all_of(users[v].begin(), users[v].end(), [&](NodeId user) {
          const Node& u = graph_.node(user);
          if (FollowsUsers(u)) return std::all_of(u.results.begin(), u.results.end(), fits);
          return stage_[user] >= stage + (kind_[user] == kCpu ? 0 : 1);
        });
      };
      if (!std::all_of(n.results.begin(), n.results.end(), fits)) return;
      reason_[id] = StrCat(backend.name, ": at the border of a region, where one kernel does it with less work");
      kind_[id] = kCpu;
      stage_[id] = stage;
      trimmed = true;
    };
    std::for_each(graph_.order.begin(), graph_.order.end(), visit);
    std::for_each(graph_.order.rbegin(), graph_.order.rend(), visit);
    return trimmed;
  }

  void Report(PartitionReport& report) {
    const std::vector<std::vector<NodeId>> users = graph_.Users();
    for (NodeId id : graph_.order) {
      const Node& n = graph_.node(id);
      if (GetOp(n.op).traits & kStructural) continue;
      const Location* l = module_.location(n);
      int kind = kind_[id];
      if (FollowsUsers(n))
        for (NodeId user : users[n.results[0]]) kind = std::max(kind, kind_[user]);
      const std::string_view backend = kind == kCpu ? "cpu" : backends_[static_cast<size_t>(kind)]->name;
      report.nodes.push_back({std::string(GetOp(n.op).name), std::string(backend), reason_[id], l ? l->source : "", l ? l->module_path : ""});
    }
  }

  Status Rebuild(PartitionReport& report) {
    const std::vector<NodeId> before = graph_.order;
    std::map<std::pair<int, int>, std::vector<NodeId>> groups;
    std::vector<NodeId> order;
    for (NodeId id : before) {
      if (graph_.node(id).op == OpId::kConst) order.push_back(id);
      else groups[{stage_[id], kind_[id]}].push_back(id);
    }
    users_ = graph_.Users();
    is_output_.assign(graph_.num_values(), false);
    for (ValueId v : graph_.outputs) is_output_[v] = true;
    for (auto& [key, nodes] : groups) {
      if (key.second == kCpu) {
        order.insert(order.end(), nodes.begin(), nodes.end());
      } else {
        order.push_back(MakeRegion(nodes, *backends_[static_cast<size_t>(key.second)]));
        ++report.delegate_calls;
      }
    }
    graph_.order = std::move(order);
    std::vector<ValueId> now(graph_.num_values());
    std::iota(now.begin(), now.end(), 0);
    for (const auto& [from, to] : renamed_) now[from] = to;
    for (NodeId id : graph_.order)
      for (ValueId& v : graph_.node(id).operands)
        if (v != kNone) v = now[v];
    for (ValueId& v : graph_.outputs) v = now[v];
    graph_.RemoveDeadNodes();
    return OkStatus();
  }

  // Which operand of its region the result `v` may update in place: a state that v is written back to. -1: none.
  int AliasOf(ValueId v, const std::vector<ValueId>& operands, const Backend& backend) const {
    const Node* update = graph_.producer(v);
    if (!backend.updates_in_place || update->op != OpId::kIndexPut) return -1;
    const Node* read = graph_.producer_if(update->operands[0], OpId::kStateRead);
    const auto writes_back = [&](NodeId user) { return graph_.node(user).op == OpId::kStateWrite && graph_.node(user).ref == read->ref; };
    if (!read || std::none_of(users_[v].begin(), users_[v].end(), writes_back) || !backend.updates_in_place(module_, graph_, *update)) return -1;
    const auto operand = std::find(operands.begin(), operands.end(), update->operands[0]);
    return operand == operands.end() ? -1 : static_cast<int>(operand - operands.begin());
  }

  // Whether the rows of i8 that `user` makes are used in this region alone.
  bool OnlyInside(NodeId user, const std::unordered_set<NodeId>& inside) const {
    if (!FollowsUsers(graph_.node(user))) return false;
    for (ValueId v : graph_.node(user).results)
      if (is_output_[v] || std::any_of(users_[v].begin(), users_[v].end(), [&](NodeId id) { return !inside.contains(id); })) return false;
    return true;
  }

  NodeId MakeRegion(const std::vector<NodeId>& nodes, const Backend& backend) {
    const std::unordered_set<NodeId> inside(nodes.begin(), nodes.end());
    auto region = std::make_unique<Region>();
    region->backend = backend.name;
    region->body = std::make_unique<Graph>(std::string(backend.name));
    Graph& body = *region->body;
    std::unordered_map<ValueId, ValueId> local;
    std::vector<ValueId> operands;
    // Inputs come before nodes in the body's numbering only by habit; handles do not depend on it.
    std::function<ValueId(ValueId)> enter = [&](ValueId v) -> ValueId {
      if (v == kNone) return kNone;
      if (auto it = local.find(v); it != local.end()) return it->second;
      const Value& outer = graph_.value(v);
      ValueId inner;
      if (const Node* constant = graph_.producer_if(v, OpId::kConst)) {
        const NodeId copy = body.AddNode(OpId::kConst);
        body.node(copy).ref = constant->ref;
        body.order.push_back(copy);
        inner = body.AddResult(copy, outer.type, outer.name);
      } else if (const Node* rows = graph_.producer(v); rows && FollowsUsers(*rows)) {
        const NodeId copy = body.AddCopy(*rows, {enter(rows->operands[0])});
        body.order.push_back(copy);
        for (ValueId result : rows->results) local[result] = body.AddResult(copy, graph_.type(result), graph_.value(result).name);
        return local[v];
      } else {
        inner = body.AddInput(outer.name, outer.type);
        operands.push_back(v);
      }
      return local[v] = inner;
    };
    std::vector<ValueId> results;
    for (NodeId id : nodes) {
      std::vector<ValueId> entered;
      for (ValueId v : graph_.node(id).operands) entered.push_back(enter(v));
      const NodeId copy = body.AddCopy(graph_.node(id), std::move(entered));
      body.order.push_back(copy);
      for (ValueId v : graph_.node(id).results) {
        local[v] = body.AddResult(copy, graph_.value(v).type, graph_.value(v).name);
        bool leaves = is_output_[v];
        for (NodeId user : users_[v]) leaves |= !inside.contains(user) && !OnlyInside(user, inside);
        if (leaves) results.push_back(v);
      }
    }
    const NodeId delegate = graph_.AddNode(OpId::kDelegate);
    graph_.node(delegate).operands = operands;
    for (ValueId v : results) {
      body.outputs.push_back(local[v]);
      region->aliases.push_back(AliasOf(v, operands, backend));
      const std::string name = graph_.value(v).name;
      const TensorType type = graph_.type(v);
      renamed_.emplace_back(v, graph_.AddResult(delegate, type, name));
    }
    graph_.node(delegate).region = std::move(region);
    // Later regions look up operands by the old handles, so uses are renamed only at the end; operands of this node included.
    return delegate;
  }

  Module& module_;
  Graph& graph_;
  std::span<const Backend* const> backends_;
  std::vector<int> kind_, stage_;
  std::vector<std::string> reason_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_;
  std::vector<std::pair<ValueId, ValueId>> renamed_;
};

}  // namespace

Result<PartitionReport> Partition(Module& module, std::span<const Backend* const> backends, bool trim) {
  PartitionReport report;
  for (auto& g : module.graphs) DT_RETURN_IF_ERROR(Partitioner(module, *g, backends).Run(report, trim));
  module.form = Form::kPartitioned;
  return report;
}

}  // namespace dovetail
