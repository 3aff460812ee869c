#include "tools/zero/launcher.h"

#include <doctest/doctest.h>

#include "tools/zero/scheduler.h"

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

TEST_CASE("more ranks than cores oversubscribe, unbound and yielding, with a line") {
  const LaunchPlan plan = plan_launch(request(9), eight_cores(), open_mpi_4);
  CHECK(quote_command(plan.command) ==
        "mpirun -n 9 --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 prog --a 'b c'");
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0] == "9 ranks on 8 slots: oversubscribed, unbound, yielding while they wait");
  CHECK(line(request(9), eight_cores(), open_mpi_5) ==
        "mpirun -n 9 --map-by slot:OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1 --mca "
        "btl "
        "'^tcp' prog --a 'b c'");
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
        "mpirun -n 8 --allow-run-as-root --map-by slot:PE=1 --bind-to core --mca smsc '^cma' --mca "
        "btl "
        "'^tcp' prog --a 'b c'");
  facts.transport_chosen = true;
  CHECK(line(request(8), facts, open_mpi_5).find("btl") == std::string::npos);
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
  const Launcher mpiexec = identify_launcher("mpiexec", "mpiexec (OpenRTE) 4.1.4");
  CHECK(mpiexec.kind == LauncherKind::open_mpi);
  CHECK(mpiexec.major == 4);
  CHECK(identify_launcher("m", "HYDRA build details:\n    Version: 4.0.2").kind ==
        LauncherKind::hydra);
  CHECK(identify_launcher("m", "Intel(R) MPI Library for Linux* OS").kind == LauncherKind::other);
}

TEST_CASE("other hosts get the variables that programs need everywhere, and those of -x") {
  CHECK(needed_everywhere({"HOME=/", "ZERO_STRICT=1", "OMP_NUM_THREADS=2", "PATH=a:b", "PATHS=c",
                           "PYTHONPATH=d", "LD_LIBRARY_PATH=e", "OMPI_MCA_x=1"}) ==
        std::vector<std::string>{"LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PATH", "PYTHONPATH",
                                 "ZERO_STRICT"});
  LaunchRequest job = request(2);
  job.hostfile = "hosts";
  job.hosts = {{"a", 1}, {"b", 1}};
  job.forwarded = {"OMP_NUM_THREADS", "ZERO_STRICT"};
  job.exports = {"MINE", "ZERO_STRICT=0"};
  CHECK(line(job, eight_cores(), open_mpi_4) ==
        "mpirun -n 2 --hostfile hosts --bind-to none -x MINE -x ZERO_STRICT=0 -x OMP_NUM_THREADS "
        "prog "
        "--a 'b c'");
  // Hydra passes the whole environment on.
  CHECK(line(job, eight_cores(), hydra) ==
        "mpirun -n 2 -f hosts -bind-to none -genv ZERO_STRICT 0 prog --a 'b c'");
  job.exports.clear();
  job.launcher_arguments = {"-x", "OMP_NUM_THREADS=3"};
  CHECK(
      line(job, eight_cores(), open_mpi_4) ==
      "mpirun -n 2 --hostfile hosts --bind-to none -x ZERO_STRICT -x OMP_NUM_THREADS=3 prog --a 'b "
      "c'");
  job.hosts = {{"localhost", 2, true}};
  job.launcher_arguments.clear();
  CHECK(line(job, eight_cores(), open_mpi_4).find("-x") == std::string::npos);
}

TEST_CASE("names of hosts with dots are kept whole") {
  LaunchRequest job = request(2);
  job.hostfile = "hosts";
  job.hosts = {{"a.example", 1}, {"10.0.0.2", 1}};
  CHECK(line(job, eight_cores(), open_mpi_4) ==
        "mpirun -n 2 --hostfile hosts --bind-to none --mca orte_keep_fqdn_hostnames 1 prog --a 'b "
        "c'");
  job.hosts.erase(job.hosts.begin());
  CHECK(line(job, eight_cores(), open_mpi_4).find("fqdn") == std::string::npos);
}

TEST_CASE("an allocation's slots are known as far as the scheduler tells them") {
  MachineFacts facts = eight_cores();
  facts.scheduler = "Slurm";
  CHECK(tasks_of_nodes("2(x3),1") == std::vector{2, 2, 2, 1});
  facts.scheduler_slots = 7;
  CHECK(line(request(7), facts, open_mpi_4) == "mpirun -n 7 --bind-to none prog --a 'b c'");
  CHECK(line(request(8), facts, open_mpi_4) ==
        "mpirun -n 8 --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 prog --a 'b c'");
  for (const char* wrong :
       {"", "x", "2(x", "2(x3", "0", "2,", "2(x0)", "-1", "99999999999", "1048576(x9)"})
    CHECK_MESSAGE(tasks_of_nodes(wrong).empty(), wrong);
}

TEST_CASE("the printed line can be pasted into a shell") {
  CHECK(quote_command({"a", "", "b c", "it's", "$HOME", "x=1"}) ==
        "a '' 'b c' 'it'\\''s' '$HOME' x=1");
}

}  // namespace
}  // namespace zero::tool
