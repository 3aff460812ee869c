#include "zero/checkpoint/file_task.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "comm/call.h"
#include "zero/base/last_words.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"
#include "zero/base/thread.h"
#include "zero/runtime/runtime_core.h"

namespace zero::detail {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Time between two exchanges, and between two lines on the terminal. Both occur several times
// within the time limit.
constexpr milliseconds longest_round{1000}, longest_silence{10'000};
// A cancelled call counts as stuck after this time.
constexpr milliseconds grace{1000};
constexpr std::chrono::seconds longest_delay{10};

milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

}  // namespace

// Progress of a rank.
struct FileTask::Round {
  std::int64_t busy, calls, done, total;
  std::int64_t quiet_ms;  // since any rank made progress, as seen by this rank

  std::string text() const {
    return total > 0 ? byte_text(done) + " of " + byte_text(total)
                     : std::to_string(calls) + " calls of the file system made";
  }
};

void FileTask::start(RuntimeCore& runtime, std::function<void()> work) {
  join();
  calls_.refused = [this, &world = runtime.world()] { return cancelled_ || world.failed(); };
  done_ = total_ = 0;
  std::packaged_task<Outcome()> task([this, work = std::move(work)] {
    checkpoint::watch_own_calls(calls_);
    return attempt(work);
  });
  own_ = task.get_future();
  const Outcome started =
      attempt([&] { worker_ = start_thread("files of a checkpoint", std::move(task)); });
  if (started.code == 0) return;
  std::promise<Outcome> not_started;
  not_started.set_value(started);
  own_ = not_started.get_future();
}

void FileTask::got_on(std::int64_t bytes) {
  if (calls_.refused()) throw Error("the work on files was cancelled");
  done_.fetch_add(bytes, std::memory_order_relaxed);
  calls_.ended.fetch_add(1, std::memory_order_relaxed);
}

// If a rank does not take part, the error reports the busy ranks' progress of the previous round.
std::vector<FileTask::Round> FileTask::exchange(Ranks& ranks, const std::string& what,
                                                std::int64_t quiet_ms,
                                                const std::vector<Round>& before) {
  try {
    const std::vector<std::int64_t> all =
        ranks.gather_words(what, {busy(), calls_.ended, done_, total_, quiet_ms});
    std::vector<Round> rounds(ranks.topology().size);
    std::memcpy(rounds.data(), all.data(), rounds.size() * sizeof(Round));
    return rounds;
  } catch (const StalledError& error) {
    std::vector<std::string> heard;
    for (std::size_t r = 0; r < before.size(); ++r)
      if (before[r].busy) heard.push_back("rank " + std::to_string(r) + ": " + before[r].text());
    if (heard.empty()) throw;
    throw StalledError(std::string(error.what()) + " (last heard of " +
                       list_of(heard, heard.size()) + ")");
  }
}

Outcome FileTask::watch(Ranks& ranks, const std::string& what) {
  const milliseconds limit = ranks.terms().time_limit;
  const milliseconds silence = std::min(longest_silence, limit / 2);
  auto moved = Clock::now(), shown = moved;
  std::int64_t known = -1;
  std::vector<Round> rounds;
  while (true) {
    await_end(std::min(longest_round, limit / 4));
    rounds = exchange(ranks, what, since(moved).count(), rounds);
    // Finds the busy rank that has done the smallest part.
    const auto share = [](const Round& round) {
      return !round.busy ? 2.0
             : round.total == 0
                 ? 1.0
                 : static_cast<double>(round.done) / static_cast<double>(round.total);
    };
    const auto slowest = std::ranges::min_element(rounds, {}, share);
    if (!slowest->busy) return agree_on_outcome(ranks, what, own());
    std::int64_t calls = 0;
    for (const Round& round : rounds) calls += round.calls;
    const std::string late = "rank " + std::to_string(slowest - rounds.begin());
    if (calls != std::exchange(known, calls))
      moved = Clock::now();
    else if (rounds.front().quiet_ms >= limit.count())  // rank 0's clock decides for all ranks
      throw StalledError(what + " has made no progress for " + comm::duration_text(limit) + ": " +
                         late + " is at " + slowest->text() +
                         "; look at that rank and its file system, or raise "
                         "zero_core.time_limit_seconds if it is only slow");
    if (ranks.topology().rank == 0 && since(shown) >= silence) {
      shown = Clock::now();
      std::fprintf(stderr, "zero: checkpoint: %s waits for %s: %s\n", what.c_str(), late.c_str(),
                   slowest->text().c_str());
    }
  }
}

// The worker's thread can be neither joined nor abandoned.
void FileTask::give_up(RuntimeCore& runtime, const Error& error) {
  cancelled_ = true;
  if (await_end(grace) || !runtime.options().abort_job) return;
  if (runtime.publish_failure(error.what(), error.exit_code()))
    print_last_words(runtime.world_rank(), runtime.world().failed_rank(), error.exit_code(),
                     error.what());
  runtime.world().abort(error.exit_code());
}

Outcome FileTask::finish(RuntimeCore& runtime, Ranks& ranks, const std::string& what) {
  try {
    Outcome all = watch(ranks, what);
    join();
    return all;
  } catch (const Error& error) {
    give_up(runtime, error);
    cancel();
    throw;
  }
}

std::string visibility_problem(FileTask& files, bool once, const std::function<void()>& work) {
  const auto give_up = Clock::now() + (once ? Clock::duration::zero() : longest_delay);
  while (true) {
    files.got_on();
    try {
      work();
      return "";
    } catch (const checkpoint::Unreadable& error) {
      throw LoadError("host " + host_name() + ": " + error.what());
    } catch (const LoadError& error) {
      if (Clock::now() >= give_up) return error.what();
      std::this_thread::sleep_for(milliseconds(50));
    }
  }
}

void await_visible(const std::string& what, FileTask& files, const std::function<void()>& work) {
  const std::string problem = visibility_problem(files, false, work);
  if (!problem.empty())
    throw TopologyError("host " + host_name() + " does not see " + what + " (" + problem +
                        "): checkpoints need a directory that all hosts share");
}

}  // namespace zero::detail
