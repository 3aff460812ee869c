#include "tools/report/comparison.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "tools/report/number.h"

namespace zero::report {
namespace {

template <class Use, class Value>
Value sum(const std::vector<Use>& uses, Value Use::*member) {
  Value total = 0;
  for (const Use& use : uses) total += use.*member;
  return total;
}

std::uint64_t bits(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

std::string figure(double value) {
  return general(value) + " (" + hexadecimal(bits(value)) + ")";
}

std::string difference_at(std::size_t index, const Step& reference, const Step& other) {
  const std::string step = "step " + std::to_string(index + 1) + ": ";
  const auto differs = [&](const char* what, double expected, double found) {
    return step + what + " " + figure(found) + ", not " + figure(expected);
  };
  if (bits(reference.loss) != bits(other.loss)) return differs("loss", reference.loss, other.loss);
  if (bits(reference.gradient_norm) != bits(other.gradient_norm))
    return differs("gradient norm", reference.gradient_norm, other.gradient_norm);
  if (reference.skipped != other.skipped)
    return step + (other.skipped ? "skipped" : "applied") + ", not " +
           (reference.skipped ? "skipped" : "applied");
  return "";
}

template <class Use>
std::vector<std::string> used_names(const Comparison& comparison, std::vector<Use> Variant::*uses,
                                    std::string Use::*name,
                                    const std::function<bool(const Use&)>& in_use) {
  std::vector<std::string> all, used;
  for (const Variant& variant : comparison.variants)
    for (const Use& use : variant.*uses) {
      if (std::find(all.begin(), all.end(), use.*name) == all.end()) all.push_back(use.*name);
      if (in_use(use)) used.push_back(use.*name);
    }
  std::erase_if(all, [&](const std::string& candidate) {
    return std::find(used.begin(), used.end(), candidate) == used.end();
  });
  return all;
}

template <class Use>
Use named(const std::vector<Use>& uses, std::string Use::*name, const std::string& wanted) {
  for (const Use& use : uses)
    if (use.*name == wanted) return use;
  return {wanted};
}

bool takes_bytes(const MemoryUse& use) {
  return use.peak != 0 || use.planned != 0;
}

}  // namespace

std::int64_t Variant::planned() const {
  return sum(memory, &MemoryUse::planned);
}
std::int64_t Variant::peak() const {
  return sum(memory, &MemoryUse::peak);
}
std::int64_t Variant::host_bytes() const {
  return sum(in_host, &MemoryUse::peak);
}
std::int64_t Variant::pinned_bytes() const {
  return sum(in_pinned, &MemoryUse::peak);
}
std::int64_t Variant::file_bytes() const {
  return sum(in_file, &MemoryUse::peak);
}
double Variant::sent() const {
  return sum(wire, &WireUse::sent);
}
double Variant::inside_node() const {
  return sum(wire, &WireUse::inside_node);
}
double Variant::between_nodes() const {
  return sum(wire, &WireUse::between_nodes);
}

std::string first_difference(const Variant& reference, const Variant& other) {
  const std::size_t steps = std::min(reference.steps.size(), other.steps.size());
  for (std::size_t i = 0; i < steps; ++i)
    if (std::string found = difference_at(i, reference.steps[i], other.steps[i]); !found.empty())
      return found;
  if (reference.steps.size() != other.steps.size())
    return std::to_string(other.steps.size()) + " steps, not " +
           std::to_string(reference.steps.size());
  if (reference.digest != other.digest)
    return "weights or moments: digest " + hexadecimal(other.digest) + ", not " +
           hexadecimal(reference.digest);
  return "";
}

Comparison runs_of(const Comparison& comparison) {
  Comparison runs = comparison;
  std::erase_if(runs.variants, [](const Variant& variant) { return !variant.ran; });
  return runs;
}

bool nothing_ran(const Comparison& comparison) {
  return std::none_of(comparison.variants.begin(), comparison.variants.end(),
                      [](const Variant& variant) { return variant.ran; });
}

const Variant& reference_of(const std::vector<Variant>& runs) {
  const auto plain = std::find_if_not(runs.begin(), runs.end(), std::mem_fn(&Variant::encoded));
  return plain == runs.end() ? runs.front() : *plain;
}

bool sums_otherwise(const std::vector<Variant>& runs, const Variant& variant) {
  const Variant& reference = reference_of(runs);
  return variant.encoded || variant.encodings != reference.encodings ||
         variant.data_ranks != reference.data_ranks;
}

const Variant& peer_of(const std::vector<Variant>& runs, const Variant& variant) {
  if (!sums_otherwise(runs, variant)) return reference_of(runs);
  // Reports of older versions have no `encodings` of an encoded run.
  if (variant.encoded && variant.encodings.empty()) return variant;
  const auto same = std::find_if(runs.begin(), runs.end(), [&](const Variant& other) {
    return sums_otherwise(runs, other) && other.encodings == variant.encodings &&
           other.data_ranks == variant.data_ranks;
  });
  return same == runs.end() ? variant : *same;
}

bool bits_equal(const Comparison& comparison) {
  const std::vector<Variant> runs = runs_of(comparison).variants;
  return std::all_of(runs.begin(), runs.end(), [&](const Variant& variant) {
    return first_difference(peer_of(runs, variant), variant).empty();
  });
}

std::vector<std::string> used_categories(const Comparison& comparison) {
  return used_names<MemoryUse>(comparison, &Variant::memory, &MemoryUse::category, takes_bytes);
}

std::vector<std::string> used_in_host(const Comparison& comparison) {
  return used_names<MemoryUse>(comparison, &Variant::in_host, &MemoryUse::category, takes_bytes);
}

std::vector<std::string> used_in_file(const Comparison& comparison) {
  return used_names<MemoryUse>(comparison, &Variant::in_file, &MemoryUse::category, takes_bytes);
}

std::vector<std::string> used_operations(const Comparison& comparison) {
  return used_names<WireUse>(comparison, &Variant::wire, &WireUse::operation,
                             [](const WireUse& use) {
                               return use.sent > 0 || use.inside_node > 0 || use.between_nodes > 0;
                             });
}

MemoryUse memory_of(const Variant& variant, const std::string& category) {
  return named(variant.memory, &MemoryUse::category, category);
}

MemoryUse in_host_of(const Variant& variant, const std::string& category) {
  return named(variant.in_host, &MemoryUse::category, category);
}

CopyUse copy_of(const Variant& variant, const std::string& direction) {
  return named(variant.copies, &CopyUse::direction, direction);
}

MemoryUse in_file_of(const Variant& variant, const std::string& category) {
  return named(variant.in_file, &MemoryUse::category, category);
}

FileUse file_of(const Variant& variant, const std::string& direction) {
  return named(variant.file, &FileUse::direction, direction);
}

WireUse wire_of(const Variant& variant, const std::string& operation) {
  return named(variant.wire, &WireUse::operation, operation);
}

}  // namespace zero::report
