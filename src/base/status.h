// Status and Result<T>: how every function of Dovetail reports a problem with its input.
//
// A default-constructed Status is OK and costs one null pointer. A failed one carries a code, a message, the place in the
// graph, the place in the user's Python source, a chain of "while ..." lines (innermost first) and, where one operation
// finds several problems, all of them. Nothing here throws, prints or exits; CHECK (check.h) is for programmer errors.
// A Status is a value: movable, not copyable (use Clone), safe to hand between threads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail {

enum class Code : unsigned char {
  kOk,
  kWrongUsage,       // an option's value or the combination is wrong, whatever the files hold: the CLI exits with 2
  kInvalidArgument,  // the caller's value is wrong (shape, dtype)
  kNotFound,         // a file, name or operator does not exist
  kCorrupt,          // a file does not follow its format
  kUnsupported,      // valid input that Dovetail cannot handle
  kOutOfRange,       // an index or a dynamic size outside its bounds
  kIo,               // the operating system refused
  kInternal,         // a broken invariant of ours
};

std::string_view CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : std::string_view(); }

  // Where in the graph ("%k = linear"), and where in the user's Python ("model.py:12, in forward"). No effect on OK; the
  // first location set wins, since it is the innermost.
  Status&& At(std::string graph_location, std::string source_location = {}) &&;
  // Adds a line "while <what>". No effect on OK.
  Status&& While(std::string what) &&;
  // Adds one more independent problem; on an OK status, becomes it.
  void Also(Status other);
  // All problems held: 0 for OK, else 1 + those added by Also.
  size_t count() const;

  // The whole message, several lines, as the CLI prints it (without a trailing newline).
  std::string ToString() const;
  Status Clone() const;

 private:
  struct Rep {
    Code code;
    std::string message, graph_location, source_location;
    std::vector<std::string> context;
    std::vector<Status> also;
  };
  std::unique_ptr<Rep> rep_;
};

inline Status OkStatus() { return Status(); }
// printf-free construction: parts are concatenated (std::string, std::string_view, const char*, integers).
namespace internal {
inline void Append(std::string& s, std::string_view v) { s += v; }
inline void Append(std::string& s, char c) { s += c; }
template <class T>
  requires std::is_integral_v<T>
void Append(std::string& s, T v) { s += std::to_string(v); }
template <class T>
  requires std::is_floating_point_v<T>
void Append(std::string& s, T v) = delete;  // it would be taken as a char; FormatDouble writes one
}  // namespace internal
template <class... Ts>
std::string StrCat(const Ts&... parts) {
  std::string s;
  (internal::Append(s, parts), ...);
  return s;
}
template <class... Ts>
Status WrongUsage(const Ts&... parts) { return Status(Code::kWrongUsage, StrCat(parts...)); }
template <class... Ts>
Status InvalidArgument(const Ts&... parts) { return Status(Code::kInvalidArgument, StrCat(parts...)); }
template <class... Ts>
Status NotFound(const Ts&... parts) { return Status(Code::kNotFound, StrCat(parts...)); }
template <class... Ts>
Status Corrupt(const Ts&... parts) { return Status(Code::kCorrupt, StrCat(parts...)); }
template <class... Ts>
Status Unsupported(const Ts&... parts) { return Status(Code::kUnsupported, StrCat(parts...)); }
template <class... Ts>
Status OutOfRange(const Ts&... parts) { return Status(Code::kOutOfRange, StrCat(parts...)); }
template <class... Ts>
Status IoError(const Ts&... parts) { return Status(Code::kIo, StrCat(parts...)); }
template <class... Ts>
Status Internal(const Ts&... parts) { return Status(Code::kInternal, StrCat(parts...)); }

// A T or the reason there is none. value() of a failed Result is a programmer error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design
  bool ok() const { return status_.ok(); }
  const Status& status() const& { return status_; }
  Status&& status() && { return std::move(status_); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace dovetail

#define DT_CONCAT_INNER(a, b) a##b
#define DT_CONCAT(a, b) DT_CONCAT_INNER(a, b)
#define DT_RETURN_IF_ERROR(expr)                      \
  do {                                                \
    if (::dovetail::Status dt_status = (expr); !dt_status.ok()) return dt_status; \
  } while (0)
// DT_ASSIGN_OR_RETURN(auto x, F());
#define DT_ASSIGN_OR_RETURN(lhs, expr) DT_ASSIGN_OR_RETURN_IMPL(DT_CONCAT(dt_result_, __LINE__), lhs, expr)
#define DT_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = std::move(tmp).value()
