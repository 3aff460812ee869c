#include "tools/zero/recovery.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "zero/base/text.h"

namespace zero::tool {
namespace {

constexpr int failures_of_a_lost_slot = 2;
constexpr std::chrono::seconds longest_pause{30};

}  // namespace

int Recovery::Place::left() const {
  if (!available) return 0;
  return static_cast<int>(
      std::ranges::count_if(failures, [](int times) { return times < failures_of_a_lost_slot; }));
}

Recovery::Recovery(const RecoveryOptions& options, std::vector<Host> hosts,
                   std::function<std::string(int)> refusal)
    : options_(options), refusal_(std::move(refusal)), alone_(hosts.empty()) {
  if (alone_) hosts.push_back({.name = "", .slots = options.ranks, .local = true});
  for (Host& host : hosts) {
    const auto slots = static_cast<std::size_t>(host.slots.value_or(1));
    places_.push_back({std::move(host), true, std::vector<int>(slots, 0)});
  }
}

bool Recovery::set_available(const std::string& host, bool available) {
  const auto place =
      std::ranges::find(places_, host, [](const Place& each) { return each.host.name; });
  if (place == places_.end() || place->available == available) return false;
  place->available = available;
  std::ranges::fill(place->failures, 0);
  return true;
}

int Recovery::left() const {
  int slots = 0;
  for (const Place& place : places_) slots += place.left();
  return slots;
}

void Recovery::forgive() {
  forgiven_ = 0;
  for (Place& place : places_)
    for (int& failures : place.failures) {
      if (left() >= options_.min_ranks) return;
      if (!place.available || failures < failures_of_a_lost_slot) continue;
      failures = failures_of_a_lost_slot - 1;
      ++forgiven_;
    }
}

Placement Recovery::place() {
  forgive();
  const int most = std::min(left(), options_.ranks);
  Placement placement;
  std::string refused;
  for (int ranks = most; ranks >= options_.min_ranks && placement.ranks == 0; --ranks) {
    const std::string why = refusal_(ranks);
    if (why.empty()) placement.ranks = ranks;
    if (refused.empty()) refused = why;
  }
  if (placement.ranks == 0) {
    reason_ = most < options_.min_ranks
                  ? count_of(most, "slot") + " " + (most == 1 ? "is" : "are") +
                        " left, and --min-ranks is " + std::to_string(options_.min_ranks)
                  : "no number of ranks from " + std::to_string(options_.min_ranks) + " to " +
                        std::to_string(most) + " fits the config: " + refused;
    return placement;
  }
  used_.clear();
  int open = placement.ranks;
  for (const Place& place : places_) {
    const int slots = std::min(place.left(), open);
    used_.push_back(slots);
    open -= slots;
    if (slots == 0 || alone_) continue;
    placement.hosts.push_back(place.host);
    placement.hosts.back().slots = slots;
  }
  return placement;
}

// Ranks fill the usable slots in the order of the hosts.
std::optional<Recovery::At> Recovery::find(int rank) const {
  for (std::size_t p = 0; p < used_.size(); rank -= used_[p++]) {
    if (rank >= used_[p]) continue;
    const std::vector<int>& failures = places_[p].failures;
    for (std::size_t slot = 0; slot < failures.size(); ++slot)
      if (failures[slot] < failures_of_a_lost_slot && rank-- == 0) return At{p, slot};
  }
  return std::nullopt;
}

std::optional<Recovery::Slot> Recovery::slot_of(int rank) const {
  const std::optional<At> at = find(rank);
  if (!at) return std::nullopt;
  return Slot{places_[at->place].host.name, static_cast<int>(at->slot)};
}

void Recovery::blame(const JobFailure& failure) {
  lost_slot_.clear();
  if (!failure.blames_slot || !failure.rank) return;
  const std::optional<At> at = find(*failure.rank);
  if (!at) return;
  Place& place = places_[at->place];
  if (++place.failures[at->slot] < failures_of_a_lost_slot) return;
  lost_slot_ = "slot " + std::to_string(at->slot) + " of " +
               (alone_ ? "this machine" : "host " + place.host.name) + " has failed twice";
}

// The launcher does not always name the failed rank, so two failures match if one lacks the rank. A
// rank that sees a peer fail may be a step ahead or behind.
bool Recovery::is_crash_loop(const JobFailure& failure) const {
  if (!last_ || failure.from_outside || last_->from_outside) return false;
  // Before the first step all ranks get an error that one rank has, and any rank may end first.
  const bool of_all = !failure.step && !failure.blames_slot;
  const bool same_rank = of_all || !failure.rank || !last_->rank || failure.rank == last_->rank;
  const bool same_step = failure.step.has_value() == last_->step.has_value() &&
                         std::abs(failure.step.value_or(0) - last_->step.value_or(0)) <= 1;
  return same_rank && same_step && failure.cause == last_->cause;
}

bool Recovery::note(const JobFailure& failure) {
  const bool progress = failure.step && failure.step != failure.resumed;
  const bool again = is_crash_loop(failure);
  without_progress_ = progress ? 0 : without_progress_ + 1;
  last_ = failure;
  blame(failure);
  reason_.clear();
  if (failure.permanent)
    reason_ = "another start would fail in the same way";
  else if (again)
    reason_ = "this is a crash loop: the same failure at the same step, twice";
  else if (restarts_ == options_.restarts)
    reason_ = "--restarts allows " + count_of(options_.restarts, "restart");
  else
    ++restarts_;
  return reason_.empty();
}

std::chrono::seconds Recovery::pause() const {
  if (without_progress_ == 0) return std::chrono::seconds(0);
  const int doubled = std::min(without_progress_ - 1, 10);
  return std::min(longest_pause, std::chrono::seconds(1 << doubled));
}

}  // namespace zero::tool
