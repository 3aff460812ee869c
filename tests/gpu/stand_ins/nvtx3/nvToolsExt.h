#pragma once

using nvtxRangeId_t = unsigned long long;
inline nvtxRangeId_t nvtxRangeStartA(const char*) {
  return 1;
}
inline void nvtxRangeEnd(nvtxRangeId_t) {}
