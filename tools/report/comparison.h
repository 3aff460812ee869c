// What a comparison of training runs found, as plain values: all that a report is written from.
// Bytes and seconds. Knows nothing of the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zero::report {

// Of the rank that holds the most.
struct MemoryUse {
  std::string category;  // "optimizer_state", ...
  std::int64_t planned = 0, peak = 0;
};

// Bytes per step, mean over ranks.
struct WireUse {
  std::string operation;                      // "all_gather", ...
  double sent = 0;                            // by the operation's definition
  double inside_node = 0, between_nodes = 0;  // on the path really taken
};

// Between memory and a file, in one direction: bytes and seconds per step, mean over ranks and
// measured steps.
struct FileUse {
  std::string direction;          // "read", "write"
  double bytes = 0, seconds = 0;  // seconds: while requests were under way
};

// Between a GPU and host memory, in one direction: bytes and seconds per step, mean over ranks and
// measured steps.
struct CopyUse {
  std::string direction;  // "to_host", "to_device"
  double bytes = 0;
  double seconds = 0;  // in which they were copied; 0 where nothing measured it
};

// Seconds per step, mean over ranks and measured steps.
struct StepTime {
  double compute = 0, waiting = 0, optimizer = 0, other = 0;

  double total() const { return compute + waiting + optimizer + other; }
};

struct Step {
  double loss = 0, gradient_norm = 0;
  bool skipped = false;
};

// One run: a stage, say. Or the plan of one: then peaks are what is planned, and the rest is empty.
struct Variant {
  std::string name;
  bool ran = true;
  std::vector<MemoryUse> memory;     // in which the rank computes: the host's, or a GPU's
  std::vector<MemoryUse> in_host;    // beside a GPU
  std::vector<MemoryUse> in_pinned;  // of that, page-locked
  std::vector<CopyUse> copies;       // between the two
  std::vector<MemoryUse> in_file;
  std::vector<FileUse> file;
  // Resident (PSS), mean over ranks: before the run took memory, and what came on top.
  double baseline = 0, resident = 0;
  std::vector<WireUse> wire;
  StepTime time;
  double tokens_per_second = 0;  // median of the measured steps
  std::vector<Step> steps;
  std::uint64_t digest = 0;    // of all weights, master weights and moments
  std::string encodings = {};  // EngineReport::encodings
  // It sends less in wire formats than the others because the list says so: its bits may differ.
  bool encoded = false;
  double compression_error = 0;  // relative, mean over steps; 0: it was not measured

  std::int64_t planned() const;
  std::int64_t peak() const;
  std::int64_t host_bytes() const;
  std::int64_t pinned_bytes() const;
  std::int64_t file_bytes() const;
  double sent() const;
  double inside_node() const;
  double between_nodes() const;
};

// What was asked for and has no figures.
struct Absent {
  std::string name, reason;
};

struct Comparison {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // of the run: name, value
  std::int64_t ranks = 0, parameters = 0;
  std::optional<double> loss_floor;  // the least mean loss, where it is known
  std::vector<Variant> variants;     // of those that ran, reference_of() has the bits of the others
  std::vector<Absent> absent = {};
  std::vector<std::string> remarks = {};  // on the memory of the variants, a sentence each
};

// The variants that ran; the rest as it is.
Comparison runs_of(const Comparison& comparison);
bool nothing_ran(const Comparison& comparison);

// The first that is not encoded, else the first.
const Variant& reference_of(const std::vector<Variant>& runs);
// Whether it encodes otherwise than reference_of(), by the list or by what the config makes of its
// row, so that its bits may differ.
bool encodes_otherwise(const std::vector<Variant>& runs, const Variant& variant);
// The run whose bits it must have: the reference, or the first that encodes as it does.
const Variant& peer_of(const std::vector<Variant>& runs, const Variant& variant);
// The first thing in which the other's bits differ ("step 3: loss 2.5 (4004...), not ..."), empty
// where all are equal: every loss, gradient norm, skipped step, weight and moment.
std::string first_difference(const Variant& reference, const Variant& other);
// Of the variants that ran: those of each are the bits of peer_of().
bool bits_equal(const Comparison& comparison);

// Categories and operations that any variant uses, in their order.
std::vector<std::string> used_categories(const Comparison& comparison);
std::vector<std::string> used_in_host(const Comparison& comparison);
std::vector<std::string> used_in_file(const Comparison& comparison);
std::vector<std::string> used_operations(const Comparison& comparison);
// Zeros where the variant has no such entry.
MemoryUse memory_of(const Variant& variant, const std::string& category);
MemoryUse in_host_of(const Variant& variant, const std::string& category);
MemoryUse in_file_of(const Variant& variant, const std::string& category);
CopyUse copy_of(const Variant& variant, const std::string& direction);
FileUse file_of(const Variant& variant, const std::string& direction);
WireUse wire_of(const Variant& variant, const std::string& operation);

}  // namespace zero::report
