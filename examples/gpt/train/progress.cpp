#include "examples/gpt/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tools/report/number.h"

namespace gpt {
namespace {

constexpr int bar_width = 16;

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string duration(double seconds) {
  const auto total = static_cast<long long>(seconds + 0.5);
  char text[32];
  if (total >= 3600)
    std::snprintf(text, sizeof text, "%lldh%02lldm", total / 3600, total / 60 % 60);
  else
    std::snprintf(text, sizeof text, "%lldm%02llds", total / 60, total % 60);
  return text;
}

std::string figures(const TrainingRecord& r) {
  char text[160], scale[32] = "";
  if (r.loss_scale != 1)
    std::snprintf(scale, sizeof scale, " | scale %g", static_cast<double>(r.loss_scale));
  std::snprintf(text, sizeof text,
                "loss %.4f | norm %.3f | lr %.2e%s | %.0f tokens/s | %.3g TFLOP/s%s", r.loss,
                r.gradient_norm, r.learning_rate, scale, r.tokens_per_second, r.tflops,
                r.skipped ? " | skipped" : "");
  return text;
}

// Returns whether the output is a terminal; under a launcher, whether the launcher's output is.
// Open MPI gives ranks a terminal even if mpirun writes to a pipe or a file.
bool output_is_terminal() {
  if (::isatty(STDOUT_FILENO) != 1) return false;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return true;
  std::error_code unreadable;
  const std::filesystem::path output =
      std::filesystem::read_symlink("/proc/" + std::to_string(::getppid()) + "/fd/1", unreadable);
  const std::string name = unreadable ? "" : output.string();
  return name.starts_with("/dev/pts/") || name.starts_with("/dev/tty");
}

}  // namespace

Progress::Progress(std::int64_t steps, std::int64_t steps_per_print, std::optional<double> floor)
    : steps_(steps),
      steps_per_print_(steps_per_print),
      floor_(floor),
      terminal_(output_is_terminal()),
      start_(std::chrono::steady_clock::now()) {}

void Progress::show(const TrainingRecord& record) {
  last_[shown_++ % recent] = record;
  if (terminal_) {
    draw_bar(record);
    bar_drawn_ = true;
  }
  const bool due = steps_per_print_ > 0 && record.step % steps_per_print_ == 0;
  if (!terminal_ && (due || record.step == 1 || record.step == steps_))
    std::printf("step %lld/%lld | %s\n", static_cast<long long>(record.step),
                static_cast<long long>(steps_), figures(record).c_str());
  std::fflush(stdout);
}

void Progress::print(const std::string& lines) const {
  std::printf("%s%s", bar_drawn_ ? "\r\x1b[K" : "", lines.c_str());
  std::fflush(stdout);
}

void Progress::draw_bar(const TrainingRecord& record) const {
  const double spent =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double left =
      spent / static_cast<double>(shown_) * static_cast<double>(steps_ - record.step);
  const auto filled =
      static_cast<std::size_t>(bar_width * record.step / std::max<std::int64_t>(1, steps_));
  std::string line = "[" + std::string(filled, '=') + std::string(bar_width - filled, ' ') + "] " +
                     std::to_string(record.step) + "/" + std::to_string(steps_) + ", " +
                     duration(left) + " left | " + figures(record);
  line.resize(std::min(line.size(), terminal_width() - 1));  // wrapped lines cannot be redrawn
  std::printf("\r%s\x1b[K", line.c_str());
}

namespace {

void print_copies(const zero::EngineReport& report) {
  for (std::size_t i = 0; i < report.ranks.front().copies.size(); ++i) {
    double bytes = 0, seconds = 0;
    for (const zero::RankReport& rank : report.ranks) {
      bytes += static_cast<double>(rank.copies[i].bytes);
      seconds += rank.copies[i].seconds;
    }
    const bool out = report.ranks.front().copies[i].direction == "to_host";
    std::printf("%s: %s per rank", out ? "gradients, GPU to host" : "parameters, host to GPU",
                zero::report::byte_text(bytes / static_cast<double>(report.ranks.size())).c_str());
    if (seconds > 0) std::printf(" at %s/s", zero::report::byte_text(bytes / seconds).c_str());
    std::printf("\n");
  }
}

}  // namespace

void print_offload_use(const zero::EngineReport& report) {
  print_copies(report);
  for (std::size_t i = 0; i < report.ranks.front().file.size(); ++i) {
    double bytes = 0, seconds = 0;
    for (const zero::RankReport& rank : report.ranks) {
      bytes += static_cast<double>(rank.file[i].bytes);
      seconds += rank.file[i].seconds;
    }
    if (seconds <= 0) continue;
    std::printf("file %s: %s per rank at %s/s\n", report.ranks.front().file[i].direction.c_str(),
                zero::report::byte_text(bytes / static_cast<double>(report.ranks.size())).c_str(),
                zero::report::byte_text(bytes / seconds).c_str());
  }
}

void Progress::finish() {
  if (bar_drawn_) std::printf("\n");
  const std::size_t count = std::min(shown_, recent);
  if (count == 0) return;
  double loss = 0, seconds = 0, tokens = 0;
  for (std::size_t i = 0; i < count; ++i) {
    loss += last_[i].loss / static_cast<double>(count);
    seconds += last_[i].seconds;
    tokens += last_[i].tokens_per_second * last_[i].seconds;
  }
  char floor[64] = "";
  if (floor_)
    std::snprintf(floor, sizeof floor, ", %.1f %% above the floor of %.4f",
                  100 * (loss / *floor_ - 1), *floor_);
  std::printf("last %zu steps: loss %.4f nats/token%s, %.0f tokens/s\n", count, loss, floor,
              tokens / seconds);
  std::fflush(stdout);
}

}  // namespace gpt
