// Requests that tests of the planner share.
#pragma once

#include <cstdint>
#include <string>

#include "tools/planner/estimate.h"

namespace zero::planner {

inline Request request_of(const ModelShape& shape, const std::string& device, int ranks,
                          int per_node = 8) {
  Request request;
  request.shape = shape;
  request.cluster = {load_device(device), ranks, per_node};
  return request;
}

inline Estimate planned(const Request& request, const std::string& row) {
  return estimate(request, parse_rows(row).front());
}

inline double gigabytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

}  // namespace zero::planner
