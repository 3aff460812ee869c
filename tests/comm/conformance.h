// Runs every operation on a communicator with known data and compares each result, bit by bit, with
// a plain scalar evaluation of the contract in comm/communicator.h. Throws on the first difference.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"

namespace zero::comm::testing {

// Returns this rank's buffer number 0 or 1, with at least this many bytes.
using Buffers = std::function<void*(int number, std::int64_t bytes)>;

struct Suite {
  std::vector<std::int64_t> counts = {0, 1, 2, 127, 128, 129, 1000, 100003};
  std::vector<DType> dtypes = {DType::fp32, DType::bf16, DType::fp16, DType::int64, DType::uint8};
  bool barriers = true;  // false: the communicator orders streams and has no barrier
};

// Returns the largest number of bytes that run_suite() requests for one buffer.
std::int64_t largest_buffer(const Suite& suite, int ranks);

// Collective; changes the communicator's reduce group. Returns the number of cases.
int run_suite(Communicator& communicator, const Suite& suite, const Buffers& buffers);

// Checks split(): order, nested groups, groups of one, and the operations inside them.
void check_splits(Communicator& communicator);

}  // namespace zero::comm::testing
