// How fast this machine's threads read memory.
#pragma once

namespace dovetail::cli {

// The fastest of a few passes over a buffer larger than common caches, in bytes per second; 0 where there is no memory for it. Takes a
// fraction of a second.
double MeasureReadBandwidth(unsigned threads);

}  // namespace dovetail::cli
