#include "base/status.h"

namespace dovetail {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kWrongUsage: return "wrong usage";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kNotFound: return "not found";
    case Code::kCorrupt: return "corrupt";
    case Code::kUnsupported: return "unsupported";
    case Code::kOutOfRange: return "out of range";
    case Code::kIo: return "I/O error";
    case Code::kInternal: return "internal error";
  }
  return "unknown";
}

Status::Status(Code code, std::string message) {
  if (code == Code::kOk) return;
  rep_ = std::make_unique<Rep>();
  rep_->code = code;
  rep_->message = std::move(message);
}

Status&& Status::At(std::string graph_location, std::string source_location) && {
  if (rep_) {
    if (rep_->graph_location.empty()) rep_->graph_location = std::move(graph_location);
    if (rep_->source_location.empty()) rep_->source_location = std::move(source_location);
  }
  return std::move(*this);
}

Status&& Status::While(std::string what) && {
  if (rep_) rep_->context.push_back(std::move(what));
  return std::move(*this);
}

void Status::Also(Status other) {
  if (other.ok()) return;
  if (!rep_) {
    *this = std::move(other);
    return;
  }
  rep_->also.push_back(std::move(other));
}

size_t Status::count() const {
  if (!rep_) return 0;
  size_t n = 1;
  for (const Status& s : rep_->also) n += s.count();
  return n;
}

std::string Status::ToString() const {
  if (!rep_) return "OK";
  std::string s = rep_->message;
  if (!rep_->graph_location.empty()) s += "\n  at " + rep_->graph_location;
  if (!rep_->source_location.empty()) s += "\n  from " + rep_->source_location;
  for (const std::string& c : rep_->context) s += "\n  while " + c;
  for (const Status& a : rep_->also) s += "\n" + a.ToString();
  return s;
}

Status Status::Clone() const {
  Status s;
  if (!rep_) return s;
  s.rep_ = std::make_unique<Rep>();
  s.rep_->code = rep_->code;
  s.rep_->message = rep_->message;
  s.rep_->graph_location = rep_->graph_location;
  s.rep_->source_location = rep_->source_location;
  s.rep_->context = rep_->context;
  for (const Status& a : rep_->also) s.rep_->also.push_back(a.Clone());
  return s;
}

}  // namespace dovetail
