// Results of a comparison of training runs, as plain values: the only input of a report. Bytes and
// seconds. Independent of the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/timeline.h"

namespace zero::report {

// Memory of the rank that uses the most.
struct MemoryUse {
  std::string category;  // "optimizer_state", ...
  std::int64_t planned = 0, peak = 0;
};

// Bytes per step, mean over ranks.
struct WireUse {
  std::string operation;                      // "all_gather", ...
  double sent = 0;                            // by the operation's definition
  double inside_node = 0, between_nodes = 0;  // on the actual path
};

// Traffic between memory and a file, in one direction: bytes and seconds per step, mean over ranks
// and measured steps.
struct FileUse {
  std::string direction;          // "read", "write"
  double bytes = 0, seconds = 0;  // seconds: while requests were in flight
};

// Traffic between a GPU and host memory, in one direction: bytes and seconds per step, mean over
// ranks and measured steps.
struct CopyUse {
  std::string direction;  // "to_host", "to_device"
  double bytes = 0;
  double seconds = 0;  // duration of the copies; 0 if not measured
};

// Seconds per step, mean over ranks and measured steps.
struct StepTime {
  double compute = 0, waiting = 0, optimizer = 0, other = 0;

  double total() const { return compute + waiting + optimizer + other; }
};

// A simulated step of a run that has not begun. Bytes per rank and step.
struct Prediction {
  bool fits = true;
  double seconds = 0, exposed = 0;  // per step; exposed: while computation waits
  double inside_node = 0, between_nodes = 0;
  double tokens_per_second = 0;  // of a rank
  double mfu = 0;                // share of the device's peak
};

struct Step {
  double loss = 0, gradient_norm = 0;
  bool skipped = false;
};

// A training run (of a stage, for example) or the plan of a run. In a plan, peaks are the planned
// values, and the other figures are empty.
struct Variant {
  std::string name;
  bool ran = true;
  std::vector<MemoryUse> memory;     // that the rank computes in: the host's, or a GPU's
  std::vector<MemoryUse> in_host;    // in host memory, on GPU ranks
  std::vector<MemoryUse> in_pinned;  // page-locked part of in_host
  std::vector<CopyUse> copies;       // between the two
  std::vector<MemoryUse> in_file;
  std::vector<FileUse> file;
  // Resident memory (PSS), mean over ranks: before the run allocated memory, and the increase.
  double baseline = 0, resident = 0;
  std::vector<WireUse> wire;
  StepTime time;
  double tokens_per_second = 0;  // median of the measured steps
  std::vector<Step> steps;
  std::uint64_t digest = 0;    // of all weights, master weights and moments
  std::string encodings = {};  // EngineReport::encodings
  // Ranks over which gradients are summed, fewer in stages of a pipeline. 0: with rank_independent,
  // whose sums do not depend on them; in older reports; and in Python's, with equal numbers.
  std::int64_t data_ranks = 0;
  // Set if the list makes this variant send less, by wire formats, so that the bits may differ.
  bool encoded = false;
  double compression_error = 0;              // relative, mean over steps; 0: not measured
  std::optional<Prediction> predicted = {};  // in a plan with a model of the machines

  std::int64_t planned() const;
  std::int64_t peak() const;
  std::int64_t host_bytes() const;
  std::int64_t pinned_bytes() const;
  std::int64_t file_bytes() const;
  double sent() const;
  double inside_node() const;
  double between_nodes() const;
};

// A requested run that has no figures.
struct Absent {
  std::string name, reason;
};

struct Comparison {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // of the run: name, value
  std::int64_t ranks = 0, parameters = 0;
  std::optional<double> loss_floor;  // the least mean loss, if known
  std::vector<Variant> variants;     // each that ran is compared bit by bit with peer_of()
  std::vector<Absent> absent = {};
  std::vector<std::string> remarks = {};  // on the memory of the variants, a sentence each
  std::optional<Timeline> timeline = {};  // the simulated step of a variant
};

// Returns the comparison with only the variants that ran, otherwise unchanged.
Comparison runs_of(const Comparison& comparison);
bool nothing_ran(const Comparison& comparison);

// Returns the first run that is not encoded, or the first if all are.
const Variant& reference_of(const std::vector<Variant>& runs);
// Returns true if the variant encodes differently from reference_of(), because of the list or the
// config, or sums over another number of data ranks, so that the bits may differ.
bool sums_otherwise(const std::vector<Variant>& runs, const Variant& variant);
// Returns the run that must be bitwise identical: the reference, or the first that sums alike.
const Variant& peer_of(const std::vector<Variant>& runs, const Variant& variant);
// Returns the first difference of the bits ("step 3: loss 2.5 (4004...), not ..."), or an empty
// text if all are equal: every loss, gradient norm, skipped step, weight and moment.
std::string first_difference(const Variant& reference, const Variant& other);
// Returns true if each variant that ran is bitwise identical to peer_of().
bool bits_equal(const Comparison& comparison);

// Categories and operations that any variant uses, in order.
std::vector<std::string> used_categories(const Comparison& comparison);
std::vector<std::string> used_in_host(const Comparison& comparison);
std::vector<std::string> used_in_file(const Comparison& comparison);
std::vector<std::string> used_operations(const Comparison& comparison);
// Each returns zeros if the variant has no such entry.
MemoryUse memory_of(const Variant& variant, const std::string& category);
MemoryUse in_host_of(const Variant& variant, const std::string& category);
MemoryUse in_file_of(const Variant& variant, const std::string& category);
CopyUse copy_of(const Variant& variant, const std::string& direction);
FileUse file_of(const Variant& variant, const std::string& direction);
WireUse wire_of(const Variant& variant, const std::string& operation);

}  // namespace zero::report
