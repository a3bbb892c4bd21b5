// What a fuzz target gives the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Runs the code under test on one input. Always returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Optional: inputs to start from, besides the files.
std::vector<std::vector<uint8_t>> FuzzSeeds() __attribute__((weak));
