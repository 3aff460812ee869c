#include "tools/zero/launcher.h"

#include <doctest/doctest.h>

#include "zero/base/error.h"

namespace zero::tool {
namespace {

const Launcher open_mpi_4{"mpirun", LauncherKind::open_mpi, 4};
const Launcher open_mpi_5{"mpirun", LauncherKind::open_mpi, 5};
const Launcher hydra{"mpirun", LauncherKind::hydra, 0};

MachineFacts eight_cores() {
  MachineFacts facts;
  facts.cores = facts.granted_cores = 8;
  return facts;
}

LaunchRequest request(int ranks) {
  LaunchRequest result;
  result.ranks = ranks;
  result.program = "prog";
  result.arguments = {"--a", "b c"};
  return result;
}

std::string line(const LaunchRequest& request, const MachineFacts& facts,
                 const Launcher& launcher) {
  return quote_command(plan_launch(request, facts, launcher).command);
}

TEST_CASE("ranks that fit get equal shares of the cores") {
  CHECK(line(request(2), eight_cores(), open_mpi_4) ==
        "mpirun -n 2 --map-by slot:PE=4 --bind-to core prog --a 'b c'");
  CHECK(line(request(3), eight_cores(), open_mpi_4) ==
        "mpirun -n 3 --map-by slot:PE=2 --bind-to core prog --a 'b c'");
  CHECK(line(request(8), eight_cores(), hydra) == "mpirun -n 8 -bind-to core:1 prog --a 'b c'");
  CHECK(plan_launch(request(8), eight_cores(), open_mpi_4).notes.empty());
}

TEST_CASE("more ranks than cores oversubscribe, unbound and yielding, and say so") {
  const LaunchPlan plan = plan_launch(request(9), eight_cores(), open_mpi_4);
  CHECK(quote_command(plan.command) ==
        "mpirun -n 9 --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 prog --a 'b c'");
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0] == "9 ranks on 8 slots: oversubscribed, unbound, yielding while they wait");
  CHECK(
      line(request(9), eight_cores(), open_mpi_5) ==
      "mpirun -n 9 --map-by slot:OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1 prog --a "
      "'b c'");
  CHECK(line(request(9), eight_cores(), hydra) == "mpirun -n 9 -bind-to none prog --a 'b c'");
}

TEST_CASE("a quota below the cores leaves ranks unbound, and yielding beyond it") {
  MachineFacts facts = eight_cores();
  facts.granted_cores = 2;
  CHECK(line(request(2), facts, open_mpi_4) == "mpirun -n 2 --bind-to none prog --a 'b c'");
  CHECK(line(request(4), facts, open_mpi_4) ==
        "mpirun -n 4 --bind-to none --mca mpi_yield_when_idle 1 prog --a 'b c'");
}

TEST_CASE("a CPU set leaves ranks unbound") {
  MachineFacts facts = eight_cores();
  facts.all_cores = false;
  CHECK(line(request(2), facts, open_mpi_4) == "mpirun -n 2 --bind-to none prog --a 'b c'");
}

TEST_CASE("root, containers and missing remote shells each add their option, for Open MPI alone") {
  MachineFacts facts = eight_cores();
  facts.root = true;
  facts.cross_memory = false;
  facts.remote_shell = false;
  CHECK(line(request(8), facts, open_mpi_4) ==
        "mpirun -n 8 --allow-run-as-root --map-by slot:PE=1 --bind-to core --mca "
        "btl_vader_single_copy_mechanism none --mca plm isolated prog --a 'b c'");
  CHECK(line(request(8), facts, open_mpi_5) ==
        "mpirun -n 8 --allow-run-as-root --map-by slot:PE=1 --bind-to core --mca smsc '^cma' prog "
        "--a "
        "'b c'");
  CHECK(line(request(8), facts, hydra) == "mpirun -n 8 -bind-to core:1 prog --a 'b c'");
}

TEST_CASE("a hostfile's slots decide") {
  LaunchRequest two_nodes = request(8);
  two_nodes.hostfile = "hosts";
  two_nodes.hosts = {{"a", 4}, {"b", 4}};
  CHECK(line(two_nodes, eight_cores(), open_mpi_4) ==
        "mpirun -n 8 --hostfile hosts --bind-to none prog --a 'b c'");
  CHECK(line(two_nodes, eight_cores(), hydra) ==
        "mpirun -n 8 -f hosts -bind-to none prog --a 'b c'");
  two_nodes.ranks = 9;
  CHECK(line(two_nodes, eight_cores(), open_mpi_4) ==
        "mpirun -n 9 --hostfile hosts --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 "
        "prog --a "
        "'b c'");
  two_nodes.hosts[1].slots.reset();
  CHECK(line(two_nodes, eight_cores(), open_mpi_4) ==
        "mpirun -n 9 --hostfile hosts --bind-to none prog --a 'b c'");
}

TEST_CASE("a hostfile that names only this machine binds like no hostfile") {
  LaunchRequest here = request(4);
  here.hostfile = "hosts";
  here.hosts = {{"localhost", 4, true}};
  CHECK(line(here, eight_cores(), open_mpi_4) ==
        "mpirun -n 4 --hostfile hosts --map-by slot:PE=2 --bind-to core prog --a 'b c'");
  here.ranks = 16;
  here.hosts[0].slots = 16;
  CHECK(line(here, eight_cores(), open_mpi_4) ==
        "mpirun -n 16 --hostfile hosts --bind-to none --mca mpi_yield_when_idle 1 prog --a 'b c'");
}

TEST_CASE("inside an allocation the scheduler's hosts and slots hold") {
  MachineFacts facts = eight_cores();
  facts.scheduler = "Slurm";
  const LaunchPlan plan = plan_launch(request(64), facts, open_mpi_4);
  CHECK(quote_command(plan.command) == "mpirun -n 64 --bind-to none prog --a 'b c'");
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0] == "hosts and slots come from Slurm");
}

TEST_CASE("extra arguments go before the program; an unknown launcher gets the least") {
  LaunchRequest extra = request(2);
  extra.launcher_arguments = {"-x", "A=1"};
  const Launcher other{"mpiexec", LauncherKind::other, 0};
  CHECK(line(extra, eight_cores(), other) == "mpiexec -n 2 -x A=1 prog --a 'b c'");
}

TEST_CASE("launchers are told apart by their version text") {
  const Launcher open_mpi = identify_launcher("mpirun", "mpirun (Open MPI) 4.1.4\n\nReport bugs");
  CHECK(open_mpi.kind == LauncherKind::open_mpi);
  CHECK(open_mpi.major == 4);
  CHECK(identify_launcher("m", "mpirun (Open MPI) 5.0.3").major == 5);
  CHECK(identify_launcher("m", "HYDRA build details:\n    Version: 4.0.2").kind ==
        LauncherKind::hydra);
  CHECK(identify_launcher("m", "Intel(R) MPI Library for Linux* OS").kind == LauncherKind::other);
}

TEST_CASE("hostfiles") {
  const auto hosts = parse_hostfile("# cluster\nnode1 slots=4 max_slots=8\n\n user@me  # head\n",
                                    LauncherKind::open_mpi, {"localhost", "me"});
  REQUIRE(hosts.size() == 2);
  CHECK(hosts[0].name == "node1");
  CHECK(hosts[0].slots == 4);
  CHECK_FALSE(hosts[0].local);
  CHECK(hosts[1].local);
  CHECK_FALSE(hosts[1].slots.has_value());

  const auto hydra_hosts =
      parse_hostfile("node1:4\nlocalhost\n", LauncherKind::hydra, {"localhost"});
  CHECK(hydra_hosts[0].name == "node1");
  CHECK(hydra_hosts[0].slots == 4);
  CHECK(hydra_hosts[1].local);
}

TEST_CASE("faulty hostfiles are refused with the line") {
  const auto refused = [](const std::string& text, LauncherKind kind, const std::string& message) {
    try {
      parse_hostfile(text, kind, {});
    } catch (const ConfigError& error) {
      CHECK(std::string(error.what()) == message);
      return;
    }
    FAIL("accepted: " << text);
  };
  refused("# nothing\n", LauncherKind::open_mpi, "the hostfile names no host");
  refused("a\nb slots=x\n", LauncherKind::open_mpi,
          "hostfile line 2: \"x\" is not a number of slots; expected 1 or more");
  refused("a slots=0\n", LauncherKind::open_mpi,
          "hostfile line 1: \"0\" is not a number of slots; expected 1 or more");
  refused("a:4\n", LauncherKind::open_mpi,
          "hostfile line 1: Open MPI writes slots as \"a slots=4\"");
  refused("a slots=4\n", LauncherKind::hydra,
          "hostfile line 1: this launcher writes slots as \"a:4\"");
}

TEST_CASE("the printed line can be pasted into a shell") {
  CHECK(quote_command({"a", "", "b c", "it's", "$HOME", "x=1"}) ==
        "a '' 'b c' 'it'\\''s' '$HOME' x=1");
}

}  // namespace
}  // namespace zero::tool
