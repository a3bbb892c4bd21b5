// Unicode's canonical composition (NFC).
#pragma once

#include <string>
#include <string_view>

namespace dovetail {

// `text` must be valid UTF-8.
std::string ToNfc(std::string_view text);

}  // namespace dovetail
