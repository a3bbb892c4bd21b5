// For backends without log1p.
#pragma once

#include <array>

namespace dovetail {

// log(1 + x) = 2 atanh(s), s = x / (x + 2): for x from -1/2 to 1, s times the polynomial in s^2 <= 1/9 of these terms, the highest first. Interpolated at
// Chebyshev nodes; the relative error is below 1e-8, and none is lost near zero as in log of a rounded sum.
inline constexpr double kLog1pLeast = -0.5, kLog1pMost = 1;
inline constexpr std::array<double, 5> kLog1pTerms = {0.26851498022652365, 0.2823661980533698, 0.4000756064491035, 0.6666664033669923, 2.0};

}  // namespace dovetail
