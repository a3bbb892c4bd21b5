#include "import/source_location.h"

namespace dovetail::pt2 {
namespace {

constexpr std::string_view kFile = "File \"", kLine = "\", line ", kIn = ", in ", kTorch = "site-packages/torch/";
constexpr size_t kMaxCode = 120;

std::string_view Trim(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}
std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  *text = end == std::string_view::npos ? std::string_view() : text->substr(end + 1);
  return line;
}

bool IsTorchItself(std::string_view file) { return file.starts_with(kTorch) || file.find(StrCat("/", kTorch)) != std::string_view::npos; }

// `frame` begins after 'File "'. Empty when it does not look like a frame.
std::string ParseFrame(std::string_view frame) {
  const std::string_view header = TakeLine(&frame);
  const size_t line = header.find(kLine);
  if (line == std::string_view::npos) return {};
  const std::string_view rest = header.substr(line + kLine.size());
  const size_t in = rest.find(kIn);
  std::string text = StrCat(header.substr(0, line), ":", rest.substr(0, in));
  if (in != std::string_view::npos) text += StrCat(", in ", Trim(rest.substr(in + kIn.size())));
  const std::string_view code = Trim(TakeLine(&frame));
  if (!code.empty() && !code.starts_with(kFile)) text += StrCat(": ", code.substr(0, kMaxCode));
  return text;
}

}  // namespace

Location ParseLocation(std::string_view stack_trace, std::string_view module_stack) {
  Location location;
  std::string_view rest = stack_trace;
  while (true) {
    const size_t at = rest.rfind(kFile);
    if (at == std::string_view::npos) break;
    const std::string_view frame = rest.substr(at + kFile.size());
    const bool torch_itself = IsTorchItself(frame.substr(0, frame.find('"')));
    if (!torch_itself || location.source.empty()) {
      std::string text = ParseFrame(frame);
      if (!text.empty()) location.source = std::move(text);
    }
    if (!torch_itself) break;
    rest = rest.substr(0, at);
  }
  const size_t last = module_stack.rfind(';');
  const std::string_view entry = last == std::string_view::npos ? module_stack : module_stack.substr(last + 1);
  const size_t first = entry.find(','), second = entry.rfind(',');
  if (first != std::string_view::npos && second > first) location.module_path = entry.substr(first + 1, second - first - 1);
  return location;
}

}  // namespace dovetail::pt2
