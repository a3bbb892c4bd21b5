#include "cli/bench_profile.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/status.h"

namespace dovetail::cli {
namespace {

using Event = Profiler::Event;
using Json = nlohmann::ordered_json;
using Kind = ProfileRow::Kind;

// XNNPACK takes the times of nodes in whole microseconds, rounded down: no speed is told for nodes that take less than this on average.
constexpr double kLeastNodeMs = 0.005;
// Rows that a level of the text shows; the others are summed in one.
constexpr size_t kShown = 15;

bool IsCall(const Event& e) { return e.instruction == Profiler::kWholeCall; }
bool IsNode(const Event& e) { return e.node != Profiler::kNoNode; }
double Milliseconds(const Event& e) { return static_cast<double>(e.end_ns - e.start_ns) * 1e-6; }

// Calls f(event's index, name of the delegate for a node).
template <class Fn>
void ForEachEvent(std::span<const Event> events, Fn f) {
  // A node's instruction comes after it.
  std::string delegate;
  for (size_t i = events.size(); i-- > 0;) {
    if (!IsNode(events[i])) delegate = events[i].name;
    f(i, delegate);
  }
}

class Tabulator {
 public:
  explicit Tabulator(const ProfiledCalls& calls) : calls_(calls) {}

  ProfileTable Run() {
    const auto faster = FasterHalf();
    for (std::span<const Event> events : faster)
      ForEachEvent(events, [&](size_t i, const std::string& delegate) {
        const Event& e = events[i];
        if (IsCall(e)) {
          table_.ms += Milliseconds(e);
          return;
        }
        ProfileRow& row = RowOf(e, delegate);
        row.calls += 1;
        row.ms += Milliseconds(e);
      });
    table_.iterations = faster.size();
    table_.ms /= static_cast<double>(std::max<size_t>(1, faster.size()));
    Average(instructions_);
    for (auto& [delegate, nodes] : nodes_) Average(nodes);
    // Of one iteration already.
    ForEachEvent(calls_.described, [&](size_t i, const std::string& delegate) {
      if (IsCall(calls_.described[i]) || i >= calls_.details.size()) return;
      ProfileRow& row = RowOf(calls_.described[i], delegate);
      row.bytes += calls_.details[i].bytes;
      row.macs += calls_.details[i].macs;
    });
    for (auto& [name, row] : instructions_)
      if (nodes_.contains(name)) row.kind = Kind::kDelegate;
    double rest = table_.ms;
    for (const ProfileRow& row : Sorted(instructions_)) {
      table_.rows.push_back(row);
      rest -= row.ms;
      if (row.kind != Kind::kDelegate) continue;
      double between = row.ms;
      for (const ProfileRow& node : Sorted(nodes_[row.name])) {
        table_.rows.push_back(node);
        between -= node.ms;
      }
      table_.rows.push_back({Kind::kRest, "between nodes", row.name, 0, std::max(0.0, between), 0, 0});
    }
    table_.rows.push_back({Kind::kRest, "between instructions", "", 0, std::max(0.0, rest), 0, 0});
    return std::move(table_);
  }

 private:
  using Rows = std::map<std::string, ProfileRow>;
  ProfileRow& RowOf(const Event& e, const std::string& delegate) {
    ProfileRow& row = (IsNode(e) ? nodes_[delegate] : instructions_)[std::string(e.name)];
    row.name = e.name;
    if (IsNode(e)) {
      row.kind = Kind::kNode;
      row.delegate = delegate;
    }
    return row;
  }
  // The events of those iterations, one element each.
  std::vector<std::span<const Event>> FasterHalf() const {
    std::vector<std::pair<double, std::span<const Event>>> iterations;
    for (size_t it = 0; it < calls_.begins.size(); ++it) {
      const size_t begin = calls_.begins[it], end = it + 1 < calls_.begins.size() ? calls_.begins[it + 1] : calls_.events.size();
      const std::span<const Event> events = calls_.events.subspan(begin, end - begin);
      double ms = 0;
      for (const Event& e : events) ms += IsCall(e) ? Milliseconds(e) : 0;
      iterations.emplace_back(ms, events);
    }
    std::stable_sort(iterations.begin(), iterations.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::span<const Event>> faster;
    for (size_t i = 0; i < (iterations.size() + 1) / 2; ++i) faster.push_back(iterations[i].second);
    return faster;
  }
  void Average(Rows& rows) const {
    for (auto& [name, row] : rows) {
      row.calls /= static_cast<double>(table_.iterations);
      row.ms /= static_cast<double>(table_.iterations);
    }
  }
  static std::vector<ProfileRow> Sorted(const Rows& rows) {
    std::vector<ProfileRow> sorted;
    for (const auto& [name, row] : rows) sorted.push_back(row);
    std::stable_sort(sorted.begin(), sorted.end(), [](const ProfileRow& a, const ProfileRow& b) { return a.ms > b.ms; });
    return sorted;
  }

  const ProfiledCalls& calls_;
  ProfileTable table_;
  Rows instructions_;
  std::map<std::string, Rows> nodes_;  // by delegate
};

// 0 where the time is not known well enough.
double PerSecond(const ProfileRow& r, double amount) {
  if (r.ms <= 0 || (r.kind == Kind::kNode && r.ms < kLeastNodeMs * r.calls)) return 0;
  return amount / (r.ms * 1e-3);
}
double BytesPerSecond(const ProfileRow& r) { return PerSecond(r, static_cast<double>(r.bytes)); }
double OperationsPerSecond(const ProfileRow& r) { return PerSecond(r, 2.0 * static_cast<double>(r.macs)); }

std::string Line(const std::string& name, const ProfileRow& r, double total_ms, double limit) {
  char text[200];
  std::snprintf(text, sizeof text, "%-46s %7.4g %9.3f %6.1f%%", name.c_str(), r.calls, r.ms, total_ms > 0 ? 100 * r.ms / total_ms : 0.0);
  std::string line = text;
  const auto number = [&](bool known, const char* format, double value) {
    char cell[32] = "";
    if (known) std::snprintf(cell, sizeof cell, format, value);
    std::snprintf(text, sizeof text, " %8s", cell);
    line += text;
  };
  const double speed = BytesPerSecond(r), operations = OperationsPerSecond(r);
  number(r.bytes > 0, "%.2f", static_cast<double>(r.bytes) * 1e-6);
  number(speed > 0, "%.2f", speed * 1e-9);
  number(speed > 0 && limit > 0, "%.0f%%", limit > 0 ? 100 * speed / limit : 0.0);
  number(operations > 0, "%.1f", operations * 1e-9);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kOperator: return "operator";
    case Kind::kDelegate: return "delegate";
    case Kind::kNode: return "node";
    default: return "rest";
  }
}

}  // namespace

ProfileTable MakeProfileTable(const ProfiledCalls& calls) { return Tabulator(calls).Run(); }

Json ProfileJson(const ProfileTable& table, double limit) {
  Json rows = Json::array();
  for (const ProfileRow& r : table.rows) {
    Json j = {{"kind", Name(r.kind)}, {"name", r.name}};
    if (!r.delegate.empty()) j["delegate"] = r.delegate;
    j["calls"] = r.calls;
    j["ms"] = r.ms;
    j["share"] = table.ms > 0 ? r.ms / table.ms : 0.0;
    if (r.kind != Kind::kRest) {
      const double speed = BytesPerSecond(r), operations = OperationsPerSecond(r);
      j["bytes"] = r.bytes;
      j["macs"] = r.macs;
      if (speed > 0) j["gb_per_s"] = speed * 1e-9;
      if (speed > 0 && limit > 0) j["limit_share"] = speed / limit;
      if (operations > 0) j["gop_per_s"] = operations * 1e-9;
    }
    rows.push_back(std::move(j));
  }
  return rows;
}

std::string ProfileText(const ProfileTable& table, double limit) {
  char heading[200];
  std::snprintf(heading, sizeof heading, "%-46s %7s %9s %7s %8s %8s %8s %8s\n", "operator", "calls", "ms", "share", "MB", "GB/s",
                "of limit", "GOP/s");
  std::string text = heading;
  const auto& rows = table.rows;
  // The rows of one level from `at` on that are not shown, in one.
  size_t shown[2] = {0, 0}, hidden[2] = {0, 0};
  ProfileRow sums[2];
  const auto flush = [&](size_t level) {
    sums[level].kind = level ? Kind::kNode : Kind::kOperator;
    if (hidden[level] > 0)
      text +=
          Line(StrCat(level ? "  " : "", hidden[level], hidden[level] == 1 ? " other kind" : " other kinds"), sums[level], table.ms, limit);
    shown[level] = hidden[level] = 0;
    sums[level] = {};
  };
  for (const ProfileRow& r : rows) {
    const size_t level = r.kind == Kind::kNode || (r.kind == Kind::kRest && !r.delegate.empty()) ? 1 : 0;
    if (r.kind == Kind::kRest) flush(level);
    // A delegate is shown wherever it comes, since its nodes follow.
    if (r.kind != Kind::kRest && r.kind != Kind::kDelegate && shown[level] >= kShown) {
      ++hidden[level];
      sums[level].calls += r.calls;
      sums[level].ms += r.ms;
      sums[level].bytes += r.bytes;
      sums[level].macs += r.macs;
      continue;
    }
    ++shown[level];
    text += Line((level ? "  " : "") + r.name, r, table.ms, limit);
  }
  return text;
}

Json TraceJson(const ProfiledCalls& calls, size_t iterations) {
  Json events = Json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "dovetail"}}}});
  events.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "calls"}}}});
  const int64_t origin =
      calls.events.empty() ? 0 : std::min_element(calls.events.begin(), calls.events.end(), [](const Event& a, const Event& b) {
                                   return a.start_ns < b.start_ns;
                                 })->start_ns;
  for (size_t it = 0; it < std::min(iterations, calls.begins.size()); ++it) {
    const size_t begin = calls.begins[it], end = it + 1 < calls.begins.size() ? calls.begins[it + 1] : calls.events.size();
    const bool same = end - begin == calls.described.size();
    for (size_t i = begin; i < end; ++i) {
      const Event& e = calls.events[i];
      Json j = {{"name", IsCall(e) ? e.method : e.name},
                {"cat", IsCall(e)   ? "call"
                        : IsNode(e) ? "node"
                                    : "instruction"},
                {"ph", "X"},
                {"ts", static_cast<double>(e.start_ns - origin) * 1e-3},
                {"dur", static_cast<double>(e.end_ns - e.start_ns) * 1e-3},
                {"pid", 1},
                {"tid", 1}};
      Json args = {{"iteration", it}};
      if (!IsCall(e)) args["instruction"] = e.instruction;
      if (IsNode(e)) args["node"] = e.node;
      const size_t at = i - begin;
      if (same && at < calls.details.size() && calls.described[at].name == e.name) {
        const Profiler::Detail& d = calls.details[at];
        const auto add = [&](const char* key, const std::string& value) {
          if (!value.empty()) args[key] = value;
        };
        add("source", d.source);
        add("layer", d.layer);
        add("op", d.op);
        if (!d.inputs.empty()) args["inputs"] = d.inputs;
        if (!d.outputs.empty()) args["outputs"] = d.outputs;
        if (d.bytes > 0) args["bytes"] = d.bytes;
        if (d.constant_bytes > 0) args["constant_bytes"] = d.constant_bytes;
        if (d.macs > 0) args["macs"] = d.macs;
      }
      j["args"] = std::move(args);
      events.push_back(std::move(j));
    }
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

}  // namespace dovetail::cli
