// Comparisons made up for the tests of the report.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "tools/report/comparison.h"

namespace samples {

inline zero::report::Variant variant(const std::string& name, std::int64_t optimizer_bytes) {
  zero::report::Variant v;
  v.name = name;
  v.memory = {{"parameters", 4'000'000, 4'000'000},
              {"optimizer_state", optimizer_bytes, optimizer_bytes},
              {"file", 0, 0}};
  v.in_file = {{"optimizer_state", 2'000'000, 2'000'000}, {"gradients", 0, 0}};
  v.file = {{"read", 2e6, 0.001, 0.00025}, {"write", 0, 0, 0}};
  v.baseline = 9e6;
  v.resident = static_cast<double>(v.planned()) + 1.5e6;
  v.wire = {{"all_gather", 3e6, 2e6, 1e6}, {"all_to_all", 0, 0, 0}};
  v.time = {0.5, 0.2, 0.02, 0.001};
  v.tokens_per_second = 12345.6;
  v.steps = {{3.5, 1.25, false}, {3.25, 1.5, false}, {3.0, 1.75, false}};
  v.digest = 0x0123456789abcdef;
  return v;
}

// Two variants with equal bits.
inline zero::report::Comparison plain() {
  return {"tiny with 1,000 parameters, 2 ranks, 3 steps",
          {{"ranks", "shm over 2 ranks"}, {"data", "built-in text"}},
          2,
          1000,
          0.75,
          {variant("stage 0", 8'000'000), variant("stage 1", 4'000'000)}};
}

// Of GPU ranks, the second of which offloads.
inline zero::report::Comparison on_gpu() {
  zero::report::Comparison c = plain();
  for (zero::report::Variant& v : c.variants) {
    v.in_host = v.in_pinned = {{"host_pinned", 500'000, 500'000}};
    v.in_file.clear();
    v.file.clear();
    v.resident = 3e6;
  }
  zero::report::Variant& offloads = c.variants.back();
  offloads.name = "stage 1 + cpu";
  offloads.memory[1] = {"optimizer_state", 0, 0};
  offloads.in_host.push_back({"optimizer_state", 4'000'000, 4'000'000});
  offloads.in_host.push_back({"gradients", 2'000'000, 2'000'000});
  offloads.in_pinned.push_back({"gradients", 2'000'000, 2'000'000});
  offloads.copies = {{"to_host", 2e6, 0.0001}, {"to_device", 1e6, 0}};
  return c;
}

// What names, bits and figures should not be, and may be.
inline zero::report::Comparison awkward() {
  zero::report::Comparison c = plain();
  const std::string hostile = "<script>alert(1)</script> \"&' | *x* `y` $(z) </style>\\";
  c.title = hostile;
  c.facts.push_back({hostile, hostile});
  c.facts.push_back({"path", std::string(300, 'x') + "/model.json"});
  c.facts.push_back({"not UTF-8", "\xff\xfe"});
  c.variants.push_back(variant(hostile, 80'000'000'000));
  c.variants.back().memory.push_back({hostile, 5'000'000'000, 5'000'000'000});
  c.variants.push_back(
      variant("a name of far more columns than there is room for beside a bar", 1));
  c.variants.back().steps[1].loss = std::nan("");
  c.variants.push_back(variant("diverged", 4'000'000));
  c.variants.back().steps[2].loss = std::numeric_limits<double>::infinity();
  c.variants.push_back(variant("other weights", 4'000'000));
  c.variants.back().digest ^= 1;
  return c;
}

// One rank, one step, nothing sent.
inline zero::report::Comparison least() {
  zero::report::Comparison c = plain();
  c.loss_floor.reset();
  for (zero::report::Variant& v : c.variants) {
    v.wire.clear();
    v.steps.resize(1);
  }
  return c;
}

}  // namespace samples
