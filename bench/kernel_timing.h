// Times of XNNPACK's kernel and ours, run by turns.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

struct KernelTimes {
  double min, median;  // microseconds
};

// Of 41 rounds of `run(ours)`: of XNNPACK's kernel and of ours.
template <class Run>
std::array<KernelTimes, 2> TimeKernels(const Run& run) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kRounds = 41;
  std::vector<double> us[2];
  for (size_t round = 0; round < kRounds; ++round)
    for (const bool ours : {false, true}) {
      const auto start = Clock::now();
      run(ours);
      us[ours].push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
  for (std::vector<double>& times : us) std::sort(times.begin(), times.end());
  return {{{us[0][0], us[0][kRounds / 2]}, {us[1][0], us[1][kRounds / 2]}}};
}
