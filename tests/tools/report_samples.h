// Invented comparisons for the tests of the report.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "tools/report/comparison.h"

namespace samples {

inline constexpr std::int64_t mib = 1 << 20;

inline zero::report::Variant variant(const std::string& name, std::int64_t optimizer_bytes) {
  zero::report::Variant v;
  v.name = name;
  v.memory = {{"parameters", 4 * mib, 4 * mib},
              {"optimizer_state", optimizer_bytes, optimizer_bytes},
              {"file", 0, 0}};
  v.in_file = {{"optimizer_state", 2 * mib, 2 * mib}, {"gradients", 0, 0}};
  v.file = {{"read", 2 * mib, 0.001}, {"write", 0, 0}};
  v.baseline = 9 * mib;
  v.resident = static_cast<double>(v.planned()) + 1.5 * mib;
  v.wire = {{"all_gather", 3 * mib, 2 * mib, mib}, {"all_to_all", 0, 0, 0}};
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
          {variant("stage 0", 8 * mib), variant("stage 1", 4 * mib)}};
}

// GPU ranks; the second variant offloads.
inline zero::report::Comparison on_gpu() {
  zero::report::Comparison c = plain();
  for (zero::report::Variant& v : c.variants) {
    v.in_host = v.in_pinned = {{"host_pinned", mib / 2, mib / 2}};
    v.in_file.clear();
    v.file.clear();
    v.resident = 3 * mib;
  }
  zero::report::Variant& offloads = c.variants.back();
  offloads.name = "stage 1 + cpu";
  offloads.memory[1] = {"optimizer_state", 0, 0};
  offloads.in_host.push_back({"optimizer_state", 4 * mib, 4 * mib});
  offloads.in_host.push_back({"gradients", 2 * mib, 2 * mib});
  offloads.in_pinned.push_back({"gradients", 2 * mib, 2 * mib});
  offloads.copies = {{"to_host", 2 * mib, 0.0001}, {"to_device", mib, 0}};
  return c;
}

// Unusual but allowed names, bits and figures.
inline zero::report::Comparison awkward() {
  zero::report::Comparison c = plain();
  const std::string hostile = "<script>alert(1)</script> \"&' | *x* `y` $(z) </style>\\";
  c.title = hostile;
  c.facts.push_back({hostile, hostile});
  c.facts.push_back({"path", std::string(300, 'x') + "/model.json"});
  c.facts.push_back({"not UTF-8", "\xff\xfe"});
  c.variants.push_back(variant(hostile, 80'000 * mib));
  c.variants.back().memory.push_back({hostile, 5'000 * mib, 5'000 * mib});
  c.variants.push_back(
      variant("a name of far more columns than there is room for next to a bar", 1));
  c.variants.back().steps[1].loss = std::nan("");
  c.variants.push_back(variant("diverged", 4 * mib));
  c.variants.back().steps[2].loss = std::numeric_limits<double>::infinity();
  c.variants.push_back(variant("other weights", 4 * mib));
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

// A variant that did not run.
inline zero::report::Variant plan_of(const std::string& name, std::int64_t optimizer_bytes) {
  zero::report::Variant v = variant(name, optimizer_bytes);
  zero::report::Variant plan;
  plan.name = name;
  plan.ran = false;
  plan.memory = v.memory;
  return plan;
}
inline zero::report::Comparison plan() {
  zero::report::Comparison c = plain();
  c.facts.clear();
  c.variants = {plan_of("stage 0", 8 * mib), plan_of("stage 3", 2 * mib)};
  c.variants.back().memory.push_back({"parameter_slots", 7 * mib, 7 * mib});
  c.remarks = {"stage 3 saves nothing over stage 0 here."};
  return c;
}

// One run, and a plan next to it.
inline zero::report::Comparison run_and_plan() {
  zero::report::Comparison c = plain();
  c.variants.back() = plan_of("stage 1", 4 * mib);
  return c;
}

// Logs of two runs have only steps and rates.
inline zero::report::Comparison logs() {
  zero::report::Comparison c = plain();
  for (zero::report::Variant& variant : c.variants) {
    zero::report::Variant log;
    log.name = variant.name;
    log.tokens_per_second = variant.tokens_per_second;
    log.steps = variant.steps;
    log.digest = variant.digest;
    variant = log;
  }
  return c;
}

// The second of three variants failed; or the first, so that nothing ran.
inline zero::report::Comparison failed() {
  zero::report::Comparison c = plain();
  c.variants.pop_back();
  c.absent = {{"stage 1", "cannot reserve 12.00 GiB for zero engine"}, {"stage 2", "did not run"}};
  return c;
}
inline zero::report::Comparison nothing() {
  zero::report::Comparison c = failed();
  c.variants.clear();
  c.facts.clear();
  c.absent.insert(c.absent.begin(), {"stage 0", "cannot reserve 15.00 GiB for zero engine"});
  return c;
}

// Samples by name, for programs and for loops over all of them.
struct Sample {
  const char* name;
  zero::report::Comparison (*make)();
};
inline constexpr Sample all[] = {{"plain", plain},   {"awkward", awkward}, {"least", least},
                                 {"gpu", on_gpu},    {"plan", plan},       {"mixed", run_and_plan},
                                 {"failed", failed}, {"nothing", nothing}, {"logs", logs}};

}  // namespace samples
