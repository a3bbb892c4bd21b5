// Python's string functions that both methods and filters offer. Upper and lower case change ASCII letters only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace dovetail::jinja {

std::string Upper(std::string_view s);
std::string Lower(std::string_view s);
std::string Capitalize(std::string_view s);
std::string Title(std::string_view s);
// Without `chars`: white space.
std::string Strip(std::string_view s, bool left, bool right, std::optional<std::string_view> chars);
// count < 0: all. Fails when the text would be too long.
Result<std::string> Replace(std::string_view s, std::string_view from, std::string_view to, int64_t count);
// most < 0: all.
std::vector<std::string> SplitSpace(std::string_view s, int64_t most);
std::vector<std::string> SplitOn(std::string_view s, std::string_view separator, int64_t most, bool from_right);
std::vector<std::string> SplitLines(std::string_view s);

}  // namespace dovetail::jinja
