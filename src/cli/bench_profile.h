// What `bench --profile` makes of a profiler's events: a table by kind, and a trace.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runtime/profiler.h"

namespace dovetail::cli {

// Iterations of the same calls. `described` ran once, with descriptions; `begins` has where each timed iteration starts in `events`.
struct ProfiledCalls {
  std::vector<Profiler::Event> described;
  std::vector<Profiler::Detail> details;  // parallel to `described`
  std::span<const Profiler::Event> events;
  std::vector<size_t> begins;
};

struct ProfileRow {
  enum class Kind { kOperator, kDelegate, kNode, kRest };
  Kind kind = Kind::kOperator;
  std::string name, delegate;  // the delegate of a node
  // Of one iteration.
  double calls = 0, ms = 0;
  uint64_t bytes = 0, macs = 0;
};

struct ProfileTable {
  // The slowest kinds of instruction first; a delegate's kinds of node follow it, the slowest first, then the rest of its time; last what
  // is between instructions.
  std::vector<ProfileRow> rows;
  double ms = 0;          // of one iteration
  size_t iterations = 0;  // that these are means of
};

// Means of the faster half of the iterations: what other processes do to the slower ones is not the program's.
ProfileTable MakeProfileTable(const ProfiledCalls& calls);
// `limit`: bytes per second that the machine reads, or 0.
nlohmann::ordered_json ProfileJson(const ProfileTable& table, double limit);
std::string ProfileText(const ProfileTable& table, double limit);
// Chrome's trace event format, of at most `iterations` iterations.
nlohmann::ordered_json TraceJson(const ProfiledCalls& calls, size_t iterations);

}  // namespace dovetail::cli
