// Snapdragon chips that have a Hexagon tensor processor (HTP), by the name that users know.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace dovetail::qnn {

struct Soc {
  std::string_view name;  // "SM8650"
  uint32_t model;         // Qualcomm's number of it
  uint32_t arch;          // of its HTP: 75 is v75
  uint32_t vtcm_mb;       // fast memory for one graph
};

std::span<const Soc> Socs();
std::string ListSocs();  // "SM8350, SM8450, ..."
// Lists the names known when there is none of that name. Case does not matter.
Result<const Soc*> FindSoc(std::string_view name);
// "SM8650 (HTP v75)", or "SoC number 123" of a chip that is not in the table.
std::string DescribeSoc(uint32_t model);

}  // namespace dovetail::qnn
