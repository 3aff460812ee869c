#include "tools/zero/launcher_lines.h"

#include <doctest/doctest.h>

#include <optional>
#include <utility>
#include <vector>

namespace zero::tool {
namespace {

const std::string rule(74, '-');
const std::string cause = "zero: rank 1: unknown option --stepps\n";

// Messages in the form of Open MPI 4.1.
const std::string aborted =
    rule +
    "\nMPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 10.\n\n"
    "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n"
    "You may or may not see output from other processes, depending on\n"
    "exactly when Open MPI kills them.\n" +
    rule + "\n";
const std::string counted =
    "[vm:07554] 1 more process has sent help message help-mpi-api.txt / mpi-abort\n"
    "[vm:07554] Set MCA parameter \"orte_base_help_aggregate\" to 0 to see all help / error "
    "messages\n";
const std::string detected =
    rule +
    "\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code. Per "
    "user-direction, the job has been aborted.\n" +
    rule + "\n" + rule +
    "\nmpirun detected that one or more processes exited with non-zero status, thus causing\nthe "
    "job to be terminated. The first process to do so was:\n\n  Process name: [[1,1],0]\n  Exit "
    "code:    3\n" +
    rule + "\n";
const std::string no_slots =
    rule + "\nThere are not enough slots available in the system to satisfy the 20\nslots\n" +
    rule + "\n";

// Returns the displayed part of the text, passed in pieces of this many bytes; "|" is the end of
// the job.
std::string shown(const std::string& text, std::size_t piece) {
  LauncherLines lines;
  std::string result;
  for (std::size_t at = 0; at < text.size(); at += piece)
    result += lines.pass(std::string_view(text).substr(at, piece));
  return result + "|" + lines.take_held();
}

TEST_CASE("after a rank has reported a cause, Open MPI's lines on the failure are left out") {
  for (const std::size_t piece : {1, 7, 75, 1000}) {
    CAPTURE(piece);
    CHECK(shown(cause + aborted + counted, piece) == cause + "|");
    // Their order may differ, since they use separate channels: the cause may come last.
    CHECK(shown(aborted + counted + cause, piece) == cause + "|");
    CHECK(shown(aborted + cause + counted + detected, piece) == cause + "|");
    CHECK(shown("a\n" + detected + "b\n" + cause + "c\n", piece) == "a\nb\n" + cause + "c\n|");
    const std::string tagged = "[1,1]<stderr>:" + cause;
    CHECK(shown(tagged + aborted, piece) == tagged + "|");
    const std::string cut_off =
        "[vm:31533] [[6099,0],0] ORTE_ERROR_LOG: Out of resource in file "
        "../../../orte/util/show_help.c at line 501\n";
    CHECK(shown(cause + cut_off, piece) == cause + "|");
    CHECK(shown(cut_off, piece) == "|" + cut_off);
  }
}

TEST_CASE("if several hosts report a cause, the first one is shown") {
  const std::string other =
      "zero: rank 2: rank 2 waited 2 s\n  in two lines\nrank 0: and a third\n";
  const std::string follower = "zero: rank 0: stopped because rank 1 failed: unknown option\n";
  for (const std::size_t piece : {1, 7, 1000}) {
    CAPTURE(piece);
    CHECK(shown(cause + other + "last\n", piece) == cause + "last\n|");
    CHECK(shown(other + cause, piece) == other + "|");
    CHECK(shown(follower + cause + aborted, piece) == cause + "|");
    CHECK(shown(cause + follower, piece) == cause + "|");
    // Preferred to Open MPI's message.
    CHECK(shown(follower + aborted, piece) == "|" + follower);
  }
  LauncherLines lines;
  CHECK(lines.pass(follower) == "");
  CHECK(lines.owes());
  CHECK(!lines.cause_said());
}

TEST_CASE("ranks' reports to zero run are kept, and not shown") {
  const std::string start = "zero: mark: start 2\n[1,0]<stderr>:zero: mark: start 0\n";
  for (const std::size_t piece : {1, 7, 1000})
    CHECK(shown("a\n" + start + "zero: mark: code 18\n" + cause, piece) == "a\n" + cause + "|");
  LauncherLines lines;
  lines.pass(start);
  CHECK(lines.started() == std::set<int>{0, 2});
  CHECK(!lines.exit_code());
  lines.pass("zero: mark: code 18\nzero: mark: code 17\n");
  CHECK(lines.exit_code() == 18);
  CHECK(!lines.start_failed());
  lines.pass("zero: rank 0: MPI did not come up on all ranks within 2 s: this rank waits\n");
  CHECK(lines.start_failed());
  CHECK(lines.cause_said());
}

TEST_CASE("the failed rank, its signal and the steps are read from ranks and from Open MPI") {
  LauncherLines lines;
  lines.pass(
      "zero: mark: resumed 400\nzero: mark: step 401\nzero: mark: saved 410\nzero: mark: step "
      "12345678901\n");
  CHECK(lines.kept().empty());
  LauncherLines more;
  more.pass(
      "zero: mark: up 1 4711 123 boot pid:[1] net:[2]\nzero: mark: stoppable 1 4712 124 boot x\n"
      "zero: mark: start 1 90\nzero: mark: met 1\nzero: mark: resumed 40 \"/a b\"\n"
      "zero: mark: saved 60 \"/a b\"\nzero: mark: saved 50 \"/c\"\nzero: mark: step 61\n"
      "zero: mark: failed 1 67\nzero: mark: code 70\n");
  CHECK(more.up() == std::set<int>{1});
  CHECK(more.met());
  CHECK(more.start_limit() == 90);
  CHECK(more.kept() == std::map<std::string, std::int64_t>{{"\"/a b\"", 60}, {"\"/c\"", 50}});
  CHECK(more.saved_in() == "\"/c\"");
  CHECK(more.step() == 67);  // steps are reported at most 20 times a second
  CHECK(more.ending());
  more.pass("zero: mark: failed 1 66\nzero: mark: step 66\nzero: mark: failed 0 90\n");
  CHECK(more.step() == 67);  // those of peers, which are behind, or fail afterwards
  more.pass("zero: mark: failed 1 68\n");
  CHECK(more.step() == 68);
  const auto processes = more.take_processes();
  REQUIRE(processes.size() == 2);
  CHECK(processes[0].name == "4711 123 boot pid:[1] net:[2]");
  CHECK(!processes[0].stoppable);
  CHECK(processes[1].stoppable);
  CHECK(more.take_processes().empty());
  CHECK(lines.resumed() == 400);
  CHECK(lines.saved() == 410);
  lines.pass("zero: mark: copied 420\n");
  CHECK(lines.copied() == 420);
  CHECK(lines.step() == 12345678901);
  CHECK(!lines.failing());
  CHECK(!lines.failed_rank());
  LauncherLines silent(false, true);
  CHECK(silent.pass(detected) + silent.take_held() == "");
  const auto of = [](const std::string& text, bool all) {
    LauncherLines read(all);
    read.pass(text);
    CHECK(read.failing());
    return std::pair(read.failed_rank(), read.signal());
  };
  const std::string killed =
      rule +
      "\nmpirun noticed that process rank 11 with PID 0 on node vm exited on signal 9 (Killed).\n" +
      rule + "\n";
  using Found = std::pair<std::optional<int>, std::optional<int>>;
  for (const bool all : {false, true}) {
    CHECK(of(killed, all) == Found{11, 9});
    CHECK(of(detected, all) == Found{0, std::nullopt});
    // A rank has the last word.
    CHECK(of("zero: mark: failed 2\nzero: mark: code 16\n" + cause + killed, all) == Found{2, 9});
    // But not if it has only seen another one die.
    CHECK(of("zero: mark: failed 2\nzero: mark: code 17\n" + cause + killed, all) == Found{11, 9});
    // And a rank that computes other values is the cause, even if another one ends first.
    CHECK(of("zero: mark: suspect 4\n" + detected, all) == Found{4, std::nullopt});
    // A rank that waits names the one that it waits for.
    const std::string late = "zero: mark: late 3\nzero: mark: failed 0\n";
    CHECK(of(late + "zero: mark: code 18\n" + cause, all) == Found{3, std::nullopt});
    CHECK(of(late + "zero: mark: code 14\n" + cause, all) == Found{0, std::nullopt});
  }
}

TEST_CASE("if no rank has reported a cause, Open MPI's lines are shown") {
  for (const std::size_t piece : {1, 7, 1000}) {
    CHECK(shown("a\n" + aborted + counted, piece) == "a\n|" + aborted + counted);
    CHECK(shown(detected + "b\n", piece) == "b\n|" + detected);
    // A notice is no cause, nor is a line that only resembles one.
    for (const char* other : {"zero: no gradient was asked for of a.b; it counts as zero\n",
                              "zero: rank one: x\n", "zero: rank 1\n", "see zero: rank 1: x\n"})
      CHECK(shown(other + aborted, piece) == other + ("|" + aborted));
  }
}

TEST_CASE("lines that are not on a rank's failure pass at once, whatever they look like") {
  const std::string table = rule + "\nloss  norm\n" + rule + "\n1     2\n";
  for (const std::string& text :
       {no_slots, cause + no_slots, table, cause + table, rule + "\n" + rule + "\n\n",
        std::string(200, '-') + "\n", std::string("---\n-\n\n"), counted, std::string("no newline"),
        std::string("\x1b[31mred\x1b[0m \xff\0 bytes\n", 20), cause + "[vm:1] Signal: 11\n"})
    for (const std::size_t piece : {1, 30, 1000}) {
      CAPTURE(text);
      const std::string all = shown(text, piece);
      std::string joined = all;
      joined.erase(joined.find('|'), 1);
      CHECK(joined == text);
    }
  LauncherLines lines;
  CHECK(lines.pass("step 1") == "step 1");
  CHECK(lines.pass("\rstep 2") == "\rstep 2");
  CHECK(!lines.undecided());
}

TEST_CASE("a line that may become one of Open MPI's waits for a moment, not for ever") {
  LauncherLines lines;
  CHECK(lines.pass("----") == "");
  CHECK(lines.undecided());
  CHECK(lines.pause() == "----");
  CHECK(!lines.undecided());
  CHECK(lines.pass("--") == "--");
  CHECK(lines.pass("\n" + rule + "\n") == "\n");
  CHECK(lines.pause() == rule + "\n");
  CHECK(lines.pass("MPI_ABORT was invoked on rank 1\n") == "MPI_ABORT was invoked on rank 1\n");
}

TEST_CASE("lines that are held back are shown unless a cause is reported") {
  LauncherLines lines;
  CHECK(lines.pass(aborted) == "");
  CHECK(lines.owes());
  CHECK(lines.take_held() == aborted);
  CHECK(!lines.owes());
  CHECK(lines.pass(detected) == "");
  CHECK(lines.owes());
  lines.pass(cause);
  CHECK(!lines.owes());
  CHECK(lines.take_held() == "");
}

}  // namespace
}  // namespace zero::tool
