#include "tools/zero/host_agent.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tools/zero/commands.h"
#include "tools/zero/job_processes.h"
#include "tools/zero/keeper_process.h"

namespace zero::tool {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds input_wait{100};

std::int64_t now_ms() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Agent {
 public:
  Agent(std::string job, bool has_keeper) : job_(std::move(job)) {
    if (!has_keeper) return;
    keeper_ = std::make_unique<KeeperProcess>(
        job_, true, [this](const std::string& line) { send("keeper " + line); });
  }

  void run() {
    send("ready");
    std::int64_t next = now_ms();
    answered_ = next;
    while (now_ms() - answered_ < lease.count()) {
      send_ranks(now_ms() >= next);
      if (now_ms() >= next) {
        send("beat " + std::to_string(now_ms()));
        next = now_ms() + beat_interval.count();
      }
      std::vector<pollfd> sources{{STDIN_FILENO, POLLIN, 0},
                                  {keeper_ ? keeper_->output() : -1, POLLIN, 0}};
      processes_.add_sources(sources);
      const int ready = poll(sources.data(), sources.size(), input_wait.count());
      if (ready > 0 && sources[0].revents != 0 && !take_input()) break;
      processes_.update();
      if (ending_ && processes_.all_gone()) {
        send("ended");
        processes_.clear();
        ending_ = false;
      }
      if (keeper_) keeper_->serve();
    }
    // A process may survive SIGKILL for a while, blocked in the kernel. No harm: the newer
    // generation prevents the commit of a checkpoint.
    processes_.kill();
  }

 private:
  void send_ranks(bool always) {
    const std::string now =
        std::to_string(processes_.ranks()) + " " + std::to_string(processes_.left());
    if (always || now != sent_) send("ranks " + now);
    sent_ = now;
  }

  void send(const std::string& line) {
    const std::string text = line + "\n";
    if (write(STDOUT_FILENO, text.data(), text.size()) != std::ssize(text)) {
      // Ignore the error: without a reader there are no answers, so the lease ends.
    }
  }

  // Returns false at the end of the input.
  bool take_input() {
    std::array<char, 4096> buffer{};
    const ssize_t got = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) return false;
    input_.append(buffer.data(), static_cast<std::size_t>(got));
    take_lines(input_, [this](const std::string& line) { take_line(line); });
    return true;
  }

  void take_line(const std::string& line) {
    constexpr std::string_view beat = "beat ", for_keeper = "keeper ", process = "process ";
    if (line == "end") {
      processes_.kill();
      ending_ = true;
    } else if (line == "ask") {
      processes_.ask();
    } else if (line.starts_with(process)) {
      processes_.add(parse_report(line.substr(process.size())));
    } else if (keeper_ && line.starts_with(for_keeper)) {
      keeper_->send(line.substr(for_keeper.size()));
    } else if (line.starts_with(beat)) {
      std::int64_t sent = 0;
      std::from_chars(line.data() + beat.size(), line.data() + line.size(), sent);
      // Count from the time of the beat, because the answer may have been under way for long.
      answered_ = std::max(answered_, std::min(sent, now_ms()));
    }
  }

  const std::string job_;
  std::unique_ptr<KeeperProcess> keeper_;
  JobProcesses processes_;
  bool ending_ = false;  // until all have gone
  std::string input_, sent_;
  std::int64_t answered_ = 0;  // when the newest answered beat was sent
};

}  // namespace

void run_host_agent(const std::string& job, bool has_keeper) {
  std::signal(SIGPIPE, SIG_IGN);
  Agent(job, has_keeper).run();
}

void add_host_agent(CLI::App& app) {
  struct Options {
    std::string job;
    bool keeper = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("host-agent", "Started by `zero run` on other hosts");
  command->add_option("JOB", options->job)->required();
  command->add_flag("--keeper", options->keeper);
  command->callback([options] { run_host_agent(options->job, options->keeper); });
}

}  // namespace zero::tool
