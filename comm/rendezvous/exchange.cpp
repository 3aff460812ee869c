#include "comm/rendezvous/exchange.h"

#include <algorithm>
#include <cstdlib>

#include "comm/call.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::comm {
namespace {

using std::chrono::milliseconds;
// The first character of a message: a value follows, or the exit code and the reason of a failure.
constexpr char good = '+', failed = '-';
// Other ranks wait a little longer than rank 0, whose error names the missing ranks.
constexpr milliseconds for_the_verdict{3000};

std::string failure(int exit_code, const std::string& reason) {
  return failed + std::to_string(exit_code) + " " + reason;
}

std::string of_rank(const std::string& key, int rank) {
  return key + "/" + std::to_string(rank);
}

}  // namespace

Exchange::Exchange(std::shared_ptr<Rendezvous> rendezvous, milliseconds limit)
    : rendezvous_(std::move(rendezvous)),
      name_(rendezvous_->fresh_name()),
      limit_(limit),
      deadline_(std::chrono::steady_clock::now() + limit) {}

milliseconds Exchange::time_left() const {
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline_ - std::chrono::steady_clock::now());
  return std::max(left, milliseconds(1));
}

void Exchange::publish_failure(const std::string& key, const std::string& message) {
  rendezvous_->set(key, message);
  // If rank 0 hosts the store, the store ends with this process.
  const auto end = std::chrono::steady_clock::now() + for_the_verdict;
  for (int r = 1; r < rendezvous_->size(); ++r) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    try {
      const std::string came = rendezvous_->get(of_rank(key, r), milliseconds(1));
      if (came.empty() || came[0] == failed) continue;  // rank r has left
      rendezvous_->get(of_rank(key, r) + "/read", std::max(left, milliseconds(1)));
    } catch (const StalledError&) {
      // Rank r is missing, or stopped.
    }
  }
}

void Exchange::confirm(const std::string& key) noexcept {
  try {
    rendezvous_->set(key + "/read", "");
  } catch (const std::exception&) {
    // Rank 0 has ended, and does not wait for this rank.
  }
}

std::string Exchange::value_of(const std::string& message) const {
  if (message.empty() || (message[0] != good && message[0] != failed))
    throw TopologyError("a rank wrote an unknown message into " + rendezvous_->describe() +
                        ": give each job a place of its own, and all ranks the same version");
  if (message[0] == good) return message.substr(1);
  char* reason = nullptr;
  const auto code = std::strtol(message.c_str() + 1, &reason, 10);
  throw PeerFailed(*reason == ' ' ? reason + 1 : reason, static_cast<int>(code));
}

void Exchange::throw_missing(const std::string& key, int first) {
  std::string who = std::to_string(first);
  int missing = 1;
  for (int r = first + 1; r < rendezvous_->size(); ++r) {
    try {
      rendezvous_->get(of_rank(key, r), milliseconds(1));
    } catch (const StalledError&) {
      who += ", " + std::to_string(r);
      ++missing;
    }
  }
  throw StalledError("of " + std::to_string(rendezvous_->size()) + " ranks, rank" +
                     (missing > 1 ? "s " : " ") + who + " did not come to " +
                     rendezvous_->describe() + " within " + duration_text(limit_) +
                     ": look for processes that did not start, or that are stopped, or raise the "
                     "start limit (ZERO_START_LIMIT)");
}

// On rank 0.
std::string Exchange::collect(std::string_view own, const std::string& key) {
  std::string all(own);
  for (int r = 1; r < rendezvous_->size(); ++r) {
    std::string message;
    try {
      message = rendezvous_->get(of_rank(key, r), time_left());
    } catch (const StalledError&) {
      throw_missing(key, r);
    }
    const std::string value = value_of(message);
    if (value.size() != own.size())
      throw TopologyError("rank " + std::to_string(r) + " says " + std::to_string(value.size()) +
                          " bytes at the start, and rank 0 says " + std::to_string(own.size()) +
                          ": give all ranks the same version of the library");
    all += value;
  }
  return all;
}

std::string Exchange::value_of_root(const std::string& key) {
  try {
    return rendezvous_->get(key, time_left() + for_the_verdict);
  } catch (const StalledError&) {
    throw StalledError("rank 0 did not come to " + rendezvous_->describe() + " within " +
                       duration_text(limit_) + ": rank " + std::to_string(rendezvous_->rank()) +
                       ", on host " + host_name() +
                       ", waits for it; look for a process that did not start, or that is "
                       "stopped, or raise the start limit (ZERO_START_LIMIT)");
  }
}

void Exchange::compare_sizes() {
  const std::string key = name_ + "/size", own = std::to_string(rendezvous_->size());
  if (rendezvous_->rank() == 0) return rendezvous_->set(key, own);
  const std::string of_root = value_of_root(key);
  if (of_root == own) return;
  const std::string problem = "rank " + std::to_string(rendezvous_->rank()) + " is one of " + own +
                              " ranks, and rank 0 one of " + of_root + ", at " +
                              rendezvous_->describe() +
                              ": give all of them the same number (WORLD_SIZE)";
  give_up(TopologyError::code, problem);
  throw TopologyError(problem);
}

std::vector<std::string> Exchange::gather(std::string_view own) {
  const std::string key = next_key();
  const int rank = rendezvous_->rank(), size = rendezvous_->size();
  std::string all;
  if (rank == 0) {
    try {
      all = collect(own, key);
    } catch (const Error& error) {
      publish_failure(key, failure(error.exit_code(), error.what()));
      throw;
    }
    if (size > 1) rendezvous_->set(key, good + all);
  } else {
    rendezvous_->set(of_rank(key, rank), good + std::string(own));
    const std::string message = value_of_root(key);
    if (!message.empty() && message[0] == failed) confirm(of_rank(key, rank));
    all = value_of(message);
  }
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r)
    texts.push_back(all.substr(r * own.size(), own.size()));
  return texts;
}

void Exchange::give_up(int exit_code, const std::string& reason) noexcept {
  try {
    const std::string key = next_key();
    const int rank = rendezvous_->rank();
    const std::string message =
        failure(exit_code, "stopped because rank " + std::to_string(rank) + " failed: " + reason);
    if (rank == 0)
      publish_failure(key, message);
    else
      rendezvous_->set(of_rank(key, rank), message);
  } catch (const std::exception&) {
    // Then the peers wait for the start limit.
  }
}

}  // namespace zero::comm
