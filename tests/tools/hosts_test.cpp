#include "tools/zero/hosts.h"

#include <doctest/doctest.h>

#include "tools/zero/host_lookup.h"
#include "tools/zero/machine.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

HostPlace look_up(const std::string& name) {
  const bool local = name == "localhost" || name == "me" || name == "me.example" ||
                     name == "192.0.2.1" || name.starts_with("127.") || name == "::1";
  return {local, name == "nowhere" ? "Name or service not known" : ""};
}

std::vector<Host> parse(const std::string& text, LauncherKind kind = LauncherKind::open_mpi) {
  return parse_hostfile({text, "hosts", kind, 8}, look_up);
}

// Returns the launcher's input in one line.
std::string handed(const std::string& text, LauncherKind kind = LauncherKind::open_mpi) {
  const std::vector<std::string> lines = hostfile_lines(parse(text, kind), kind);
  return list_of(lines, lines.size(), "|");
}

template <class Error = ConfigError>
std::string refused(const std::string& text, LauncherKind kind = LauncherKind::open_mpi) {
  try {
    return "accepted: " + handed(text, kind);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_CASE("hostfiles as people have them are handed over in one form") {
  const auto hosts = parse("# cluster\nnode1 slots=4 max_slots=8\n\n user@me  # head\n");
  REQUIRE(hosts.size() == 2);
  CHECK(hosts[0].name == "node1");
  CHECK(hosts[0].slots == 4);
  CHECK_FALSE(hosts[0].local);
  CHECK(hosts[1].local);
  CHECK(hosts[1].line == 4);

  CHECK(handed("# two workers\r\nlocalhost slots=2\r\n\r\n") == "localhost slots=2");
  CHECK(handed("\xef\xbb\xbflocalhost slots=2") == "localhost slots=2");
  CHECK(handed("localhost slots = 2\n") == "localhost slots=2");
  CHECK(handed("a\tSLOTS= 3\nb cpus=2") == "a slots=3|b slots=2");
  CHECK(handed("a max-slots=4\n") == "a slots=4");
  CHECK(handed("u@a slots=1\nb user=v slots=1\n") == "u@a slots=1|v@b slots=1");
  // One line per rank, as in PBS; the cores of this machine, if no line gives a number.
  CHECK(handed("a\nb\na\na\n") == "a slots=3|b");
  CHECK(handed("localhost\n") == "localhost slots=8");
  CHECK(handed("localhost\nme\n192.0.2.1\n") == "localhost slots=3");
  CHECK(handed("192.0.2.1\n") == "192.0.2.1 slots=8");
  CHECK(handed("worker-0 slots=1\nworker-1 slots=1") == "worker-0 slots=1|worker-1 slots=1");
  // Replaced, because Open MPI takes the first for another host, and cannot read the others.
  for (const char* here : {"127.0.1.1 slots=2", "::1 slots=2", "[::1] slots=2"})
    CHECK(handed(here) == "localhost slots=2");

  CHECK(handed("node1:4\nlocalhost\n", LauncherKind::hydra) == "node1:4|localhost:8");
  CHECK(handed("[fe80::2]:4\n", LauncherKind::hydra) == "fe80::2:4");
}

TEST_CASE("a file that the launcher reads like the plan is handed over itself") {
  CHECK(says_the_same("# a\nnode1 slots=4  # b\n\nnode2 slots=2",
                      {"node1 slots=4", "node2 slots=2"}));
  CHECK_FALSE(says_the_same("node1 slots=4\r\n", {"node1 slots=4"}));
  CHECK_FALSE(says_the_same("node1\nnode1\n", {"node1 slots=2"}));
  CHECK_FALSE(says_the_same("node1 slots=4\n", {"node1 slots=4", "node2 slots=4"}));
}

TEST_CASE("faulty hostfiles are refused with file, line and the expected form") {
  CHECK(refused("# nothing\n") == "hostfile hosts names no host");
  CHECK(refused("a\nb slots=x\n") ==
        "hostfile hosts:2: \"x\" is not a number of slots; expected 1 to 1048576");
  for (const char* slots : {"0", "-1", "1048577", "2x", ""})
    CHECK(refused(std::string("a slots=") + slots).starts_with("hostfile hosts:1: "));
  CHECK(refused("a:4\n") == "hostfile hosts:1: Open MPI writes slots as \"a slots=4\"");
  CHECK(refused("a slots=4\n", LauncherKind::hydra) ==
        "hostfile hosts:1: this launcher writes slots as \"a:4\"");
  CHECK(
      refused("localhost slots=2\nlocalhost lots=2\n") ==
      "hostfile hosts:2: \"lots=2\" is unknown; expected NAME, or NAME slots=N (also max_slots=N, "
      "user=NAME)");
  CHECK(refused("a b\n").starts_with("hostfile hosts:1: \"b\" is unknown"));
  CHECK(
      refused("localhost slots=2\n\n\nlocalhost slots = 2\n") ==
      "hostfile hosts:4: localhost is listed in line 1 already, and slots are given: expected one "
      "line with all of its slots, or one line without slots for each rank");
  CHECK(refused("a\na slots=2\n").starts_with("hostfile hosts:2: a is listed in line 1 already"));
  CHECK(refused("localhost slots=2\nme slots=2\n")
            .starts_with("hostfile hosts:2: me is listed in line 1 already, as localhost, and"));
  CHECK(refused("a slots=4 max_slots=2\n") == "hostfile hosts:1: max_slots=2 is below slots=4");
  CHECK(refused("a slots=4 slots=2\n").starts_with("hostfile hosts:1: \"slots=2\" is given twice"));
  CHECK(refused("u@a\nv@a\n") ==
        "hostfile hosts:2: a is listed in line 1 already, with another user");
  CHECK(refused("fe80::2 slots=2\n").starts_with("hostfile hosts:1: fe80::2: Open MPI does not"));
  for (const char* name : {"^a", "\"a\"", "+n0", "-x", "a,b", "slots=2", "@", "[::1", "[::1]4"})
    CHECK(refused(name).starts_with("hostfile hosts:1: \""));
  CHECK(
      refused<TopologyError>("a\nnowhere slots=2\n") ==
      "hostfile hosts:2: host nowhere cannot be found: Name or service not known; check the name, "
      "or give the host's address");
}

TEST_CASE("this machine is known by each of its names and addresses") {
  for (const std::string& name : local_host_names())
    CHECK_MESSAGE(place_of(name, true).local, name);
  CHECK(place_of(host_name(), true).local);
  CHECK(place_of("LOCALHOST", true).local);
  for (const char* address : {"127.0.0.1", "127.0.1.1", "127.9.9.9"})
    CHECK(place_of(address, true).local);
  CHECK_FALSE(place_of("192.0.2.77", true).local);
  CHECK(place_of("192.0.2.77", true).problem.empty());
  CHECK_FALSE(place_of("no-such-host.invalid", true).problem.empty());
  // Accepted, since an agent may have its own names.
  CHECK(place_of("no-such-host.invalid", false).problem.empty());
}

}  // namespace
}  // namespace zero::tool
