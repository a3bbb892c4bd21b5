#include "backends/qnn/api/soc.h"

#include <strings.h>

namespace dovetail::qnn {
namespace {

// Numbers, architectures and memory sizes are those of ExecuTorch 1.5.1's backends/qualcomm/serialization/qc_schema.py.
constexpr Soc kSocs[] = {
    {"SM8350", 30, 68, 4}, {"SM8450", 36, 69, 8}, {"SM8475", 42, 69, 8}, {"SM8550", 43, 73, 8}, {"SM8650", 57, 75, 8},
    {"SM8750", 69, 79, 8}, {"SM8845", 97, 81, 8}, {"SM8850", 87, 81, 8}, {"QCM6490", 93, 68, 2}, {"QCS9100", 77, 73, 8},
    {"SA8255", 52, 73, 8}, {"SA8295", 39, 68, 8}, {"SA8797", 72, 81, 16}, {"SC8380XP", 60, 73, 8}, {"SSG2115P", 46, 73, 2},
    {"SSG2125P", 58, 73, 2}, {"SXR1230P", 45, 73, 2}, {"SXR2230P", 53, 69, 8}, {"SXR2330P", 75, 79, 8}, {"SAR2230P", 95, 81, 4}, {"SW6100", 96, 81, 4},
};

}  // namespace

std::span<const Soc> Socs() { return kSocs; }

std::string ListSocs() {
  std::string list;
  for (const Soc& soc : kSocs) list += StrCat(list.empty() ? "" : ", ", soc.name);
  return list;
}

Result<const Soc*> FindSoc(std::string_view name) {
  for (const Soc& soc : kSocs)
    if (soc.name.size() == name.size() && strncasecmp(soc.name.data(), name.data(), name.size()) == 0) return &soc;
  return WrongUsage("unknown SoC '", name, "'; there are ", ListSocs());
}

std::string DescribeSoc(uint32_t model) {
  for (const Soc& soc : kSocs)
    if (soc.model == model) return StrCat(soc.name, " (HTP v", soc.arch, ")");
  return StrCat("SoC number ", model);
}

}  // namespace dovetail::qnn
