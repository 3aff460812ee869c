#include "zero/base/last_words.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <thread>

#include "zero/base/error.h"
#include "zero/base/run_marks.h"
#include "zero/base/text.h"

namespace zero {
namespace {

// The names of the exceptions in zero/base/error.h, by exit code.
constexpr int first_code = 10;
constexpr const char* kinds[] = {"CONFIG", "TOPOLOGY", "DISAGREEMENT", "MEMORY",  "SAVE",
                                 "LOAD",   "NUMERIC",  "PEER_FAILED",  "STALLED", "OFFLOAD"};

std::string_view kind_of(int exit_code) {
  const int number = exit_code - first_code;
  return number >= 0 && number < std::ssize(kinds) ? kinds[number] : "INTERNAL";
}

}  // namespace

void print_last_words(int seen_by, int failed_rank, int exit_code,
                      const std::string& text) noexcept {
  std::string line = "zero: rank " + std::to_string(seen_by) + ": " + text + "\n";
  const char* wanted = std::getenv("ZERO_ERROR_JSON");
  if (wanted != nullptr && std::string_view(wanted) == "1")
    line += "{\"zerr\":" + json_text(kind_of(exit_code)) +
            ",\"rank\":" + std::to_string(failed_rank) + ",\"seen_by\":" + std::to_string(seen_by) +
            ",\"host\":" + json_text(host_name()) + ",\"pid\":" + std::to_string(getpid()) +
            ",\"exit_code\":" + std::to_string(exit_code) + ",\"message\":" + json_text(text) +
            "}\n";
  mark_failure(failed_rank, exit_code);
  // A single call, so that the lines of ranks do not mix.
  std::fputs(line.c_str(), stderr);
  std::fflush(nullptr);
  std::this_thread::sleep_for(unread_output);
}

}  // namespace zero
