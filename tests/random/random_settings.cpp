// Random settings of the engine, over ranks that are threads: runs of the same terms have the same
// bits, also after resuming from a checkpoint, and use the memory of their plan to the byte;
// settings without sense are refused by name.
//
// usage: random_settings [--seed S] [--draws N | --seconds T] [--draw I [--print json]]
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/offload/disk_directory.h"
#include "tests/random/draws.h"

namespace {

using namespace random_draws;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds longest_draw{300};

struct Arguments {
  std::uint64_t seed = 1;  // given as 0: the day
  std::uint64_t draws = 1000;
  double seconds = 0;  // instead of a number of draws
  std::int64_t draw = -1;
  bool prints = false;  // prints the draw, and runs nothing
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--seed") arguments.seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--draws") arguments.draws = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seconds") arguments.seconds = std::strtod(argv[i + 1], nullptr);
    if (name == "--print") arguments.prints = true;
    if (name == "--draw") arguments.draw = std::strtoll(argv[i + 1], nullptr, 10);
  }
  if (arguments.seed == 0) {
    using Days = std::chrono::duration<std::uint64_t, std::ratio<86400>>;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    arguments.seed = std::chrono::duration_cast<Days>(now).count();
  }
  return arguments;
}

// Ends the process if one draw takes too long.
class Watch {
 public:
  Watch() : thread_([this] { wait(); }) {}
  ~Watch() {
    begin("");
    thread_.join();
  }
  Watch(const Watch&) = delete;
  // An empty text: there are no more draws.
  void begin(const std::string& again) {
    const std::lock_guard lock(mutex_);
    again_ = again;
    ++number_;
    changed_.notify_one();
  }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const int number = number_;
      if (changed_.wait_for(lock, longest_draw, [&] { return number_ != number; })) {
        if (again_.empty()) return;
        continue;
      }
      if (number == 0) continue;
      std::printf("HANGS for %d s\n  again: %s\n", int(longest_draw.count()), again_.c_str());
      std::fflush(stdout);
      std::_Exit(1);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string again_;
  int number_ = 0;
  std::thread thread_;
};

nlohmann::json json_of(const std::vector<Setting>& settings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Setting& setting : settings)
    list.push_back(
        {{"keys", setting.keys}, {"executor", setting.executor}, {"strict", setting.strict}});
  return list;
}

// Prints the draw for programs that train another model with it.
void print(const Draw& draw) {
  const nlohmann::json json = {
      {"any", draw.any},
      {"ranks", draw.terms.ranks},
      {"accumulation", draw.terms.accumulation},
      {"terms", draw.terms.keys},
      {"settings", json_of(draw.settings)},
      {"resuming", json_of(draw.other_ranks ? std::vector<Setting>() : draw.resuming)}};
  std::puts(json.dump().c_str());
}

// Counts of the draws so far.
struct Totals {
  int draws = 0, runs = 0, alone = 0, resuming = 0, any = 0, refused = 0, failed = 0;
};

void check_one(const std::string& again, const Draw& draw, bool shrinks, const std::string& folder,
               Totals& totals) {
  const Verdict verdict = check(draw, folder);
  ++totals.draws;
  totals.runs += verdict.runs;
  totals.alone += verdict.alone;
  totals.resuming += !draw.resuming.empty();
  totals.any += draw.any;
  totals.refused += verdict.refused;
  if (verdict.problem.empty()) return;
  ++totals.failed;
  std::printf("FAILED: %s%s  again: %s\n", verdict.problem.c_str(), text_of(draw).c_str(),
              again.c_str());
  std::fflush(stdout);
  if (shrinks) {
    const Draw small = shrink(draw, folder);
    std::printf("in short: %s%s", check(small, folder).problem.c_str(), text_of(small).c_str());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  if (arguments.prints) {
    print(make_draw(arguments.seed, static_cast<std::uint64_t>(arguments.draw), "nvme"));
    return 0;
  }
  const DiskDirectory folder;
  const Clock::time_point begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const bool one = arguments.draw >= 0;
  Totals totals;
  {
    Watch watch;
    const auto goes_on = [&](std::uint64_t done) {
      if (one) return done < 1;
      return arguments.seconds > 0 ? seconds() < arguments.seconds : done < arguments.draws;
    };
    for (std::uint64_t i = 0; goes_on(i); ++i) {
      const std::uint64_t number = one ? static_cast<std::uint64_t>(arguments.draw) : i;
      const std::string again = std::string(argv[0]) + " --seed " + std::to_string(arguments.seed) +
                                " --draw " + std::to_string(number);
      watch.begin(again);
      check_one(again, make_draw(arguments.seed, number, folder.path()), one, folder.path(),
                totals);
    }
  }
  std::printf(
      "seed %llu: %d draws (%d resume, %d of any keys, %d of these refused), %d runs (%d encode "
      "otherwise than the others), %d failed, %.0f s\n",
      static_cast<unsigned long long>(arguments.seed), totals.draws, totals.resuming, totals.any,
      totals.refused, totals.runs, totals.alone, totals.failed, seconds());
  return totals.failed > 0 ? 1 : 0;
}
