#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>

#include "comm/environment.h"
#include "tests/comm/thread_ranks.h"

namespace zero::comm::testing {
namespace {

using namespace std::chrono_literals;

template <class Thrown>
std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Thrown& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

bool holds(const std::string& text, const std::string& part) {
  INFO(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

WorldOptions limited(std::chrono::milliseconds limit) {
  WorldOptions options;
  options.time_limit = limit;
  return options;
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("arguments that cannot be right are refused") {
  const auto world = create_single_world({});
  Communicator& comm = world->communicator();
  float data[8] = {};
  CHECK_THROWS_AS(comm.all_gather(data, data, -1, DType::fp32), UsageError);
  CHECK_THROWS_AS(comm.all_gather(nullptr, data, 1, DType::fp32), UsageError);
  CHECK_THROWS_AS(comm.all_gather(data + 1, data, 2, DType::fp32), UsageError);
  CHECK_THROWS_AS(comm.reduce_scatter(data, data + 4, 2, DType::fp32, 1), UsageError);
  CHECK_THROWS_AS(comm.reduce_scatter(data, data + 1, 2, DType::fp32), UsageError);
  CHECK_THROWS_AS(comm.broadcast(data, 1, DType::fp32, 1), UsageError);
  CHECK_THROWS_AS(comm.all_to_all(data, data, 1, DType::fp32), UsageError);
  CHECK_THROWS_AS(comm.set_reduce_groups(-1), UsageError);
  ReduceGroups crossing = 4;
  crossing.sizes[1] = 6;
  CHECK_THROWS_AS(comm.set_reduce_groups(crossing), UsageError);
  comm.set_reduce_groups(9);
  CHECK(comm.reduce_groups() == ReduceGroups());
  CHECK(comm.traffic().calls[0] == 0);
}

TEST_CASE("a missing rank is named, with its last call") {
  const std::string text = message_of<StalledError>([] {
    std::atomic<bool> stalled{false};
    on_thread_ranks(
        3,
        [&](World& world) {
          Communicator& comm = world.communicator();
          std::int64_t values[3] = {};
          comm.set_subject("unit h.4");
          comm.all_gather(&values[comm.rank()], values, 1, DType::int64);
          comm.set_subject("unit h.3");
          if (comm.rank() == 2) {
            while (!stalled) std::this_thread::sleep_for(1ms);
            return;
          }
          try {
            comm.all_reduce(values, 3, DType::int64);
          } catch (const StalledError&) {
            stalled = true;
            throw;
          }
        },
        limited(150ms));
  });
  holds(text, "waited 150 ms in all_reduce of unit h.3 (call 2)");
  holds(text, "rank 2 has not entered it, its last call was all_gather of unit h.4 (call 1)");
}

TEST_CASE("different calls are named with both ranks") {
  const std::string text = message_of<DisagreementError>([] {
    on_thread_ranks(2, [](World& world) {
      Communicator& comm = world.communicator();
      float values[8] = {}, out[8];
      comm.set_subject("unit a");
      if (comm.rank() == 0)
        comm.all_gather(values, out, 4, DType::fp32);
      else
        comm.reduce_scatter(values, out, 3, DType::bf16);
    });
  });
  holds(text, "rank 0 called all_gather of unit a (call 1) with 4 fp32 elements");
  holds(text, "rank 1 called reduce_scatter of unit a (call 1) with 3 bf16 elements");
}

TEST_CASE("different counts, dtypes, roots and reduce groups are disagreements") {
  const auto disagree = [](const std::function<void(Communicator&, float*)>& call) {
    CHECK_THROWS_AS(on_thread_ranks(3,
                                    [&](World& world) {
                                      std::vector<float> data(50'000);
                                      call(world.communicator(), data.data());
                                    }),
                    DisagreementError);
  };
  disagree([](Communicator& c, float* d) { c.all_reduce(d, 40'000 + c.rank(), DType::fp32); });
  disagree([](Communicator& c, float* d) {
    c.all_reduce(d, 40, c.rank() == 2 ? DType::bf16 : DType::fp32);
  });
  disagree([](Communicator& c, float* d) { c.broadcast(d, 9, DType::fp32, c.rank() / 2); });
  disagree([](Communicator& c, float* d) {
    c.set_reduce_groups(1 + c.rank());
    c.all_reduce(d, 9, DType::fp32);
  });
}

TEST_CASE("a failure reaches all ranks with its message and exit code") {
  std::atomic<int> informed{0};
  const auto run = [&] {
    on_thread_ranks(4, [&](World& world) {
      if (world.topology().rank == 3) throw NumericError("loss is not finite in step 7");
      const auto groups = world.communicator().split(world.topology().rank == 0, 0);
      std::this_thread::sleep_for(1s);
    });
  };
  CHECK_THROWS_AS(run(), NumericError);
  on_thread_ranks(3, [&](World& world) {
    if (world.topology().rank == 1) {
      CHECK(world.fail("loss is not finite in step 7", 16));
      return;
    }
    try {
      world.communicator().barrier();
    } catch (const PeerFailed& error) {
      CHECK(error.exit_code() == 16);
      CHECK(std::string(error.what()) ==
            "stopped because rank 1 failed: loss is not finite in step 7");
      CHECK(!world.fail(error.what(), error.exit_code()));
      ++informed;
    }
  });
  CHECK(informed == 2);
}

TEST_CASE("the launcher's variables are compared with MPI's ranks") {
  {
    const Variable size("OMPI_COMM_WORLD_SIZE", "4");
    const Launcher launcher = find_launcher();
    CHECK_NOTHROW(check_launcher(launcher, 4));
    const auto text = message_of<TopologyError>([&] { check_launcher(launcher, 1); });
    holds(text, "OMPI_COMM_WORLD_SIZE says 4 ranks, but MPI sees 1");
    holds(text, "mpirun");
  }
  const Variable tasks("SLURM_NTASKS", "8");
  CHECK(!find_launcher().found());  // a batch script, not a step
  const Variable step("SLURM_STEP_ID", "0");
  CHECK(find_launcher().ranks == 8);
  const Variable pmi("PMI_SIZE", "2");
  CHECK(find_launcher().variable == "PMI_SIZE");
}

TEST_CASE("a process that any launcher counts among several is no world of its own") {
  int argc = 0;
  char** argv = nullptr;
  const auto refusal = [&](const char* name, const char* value) {
    const Variable variable(name, value);
    return message_of<TopologyError>([&] { create_world(argc, argv, {}); });
  };
  for (const char* name : {"MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE", "FLUX_JOB_SIZE",
                           "PALS_LOCAL_SIZE", "JSM_NAMESPACE_SIZE", "LOCAL_WORLD_SIZE"}) {
    holds(refusal(name, "2"), name + std::string(" says 2 ranks"));
    const Variable one(name, "1");
    CHECK(create_world(argc, argv, {})->topology().size == 1);
  }
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK",
        "PALS_RANKID", "JSM_NAMESPACE_RANK", "FLUX_TASK_RANK", "SLURM_PROCID", "LOCAL_RANK"})
    holds(refusal(name, "1"), name + std::string(" says that this is rank 1"));
  // A batch script has these.
  const Variable rank("SLURM_PROCID", "0"), tasks("SLURM_NTASKS", "2");
  const Variable size("SLURM_STEP_NUM_TASKS", "2");
  CHECK(create_world(argc, argv, {})->topology().size == 1);
  const Variable step("SLURM_STEP_ID", "0");
  CHECK_THROWS_AS(check_alone(), TopologyError);
}

TEST_CASE("variables of torchrun that do not fit together are named") {
  int argc = 0;
  char** argv = nullptr;
  const auto refusal = [&] {
    return message_of<ConfigError>([&] { create_world(argc, argv, {}); });
  };
  const Variable size("WORLD_SIZE", "2");
  holds(refusal(), "RANK is not set");
  const Variable rank("RANK", "2");
  holds(refusal(), "RANK is \"2\"");
  const Variable own("RANK", "1");
  holds(refusal(), "MASTER_PORT is not set");
  const Variable port("MASTER_PORT", "0");
  holds(refusal(), "MASTER_PORT is \"0\"");
  const Variable good_port("MASTER_PORT", "29500");
  holds(refusal(), "MASTER_ADDR is not set");
  const Variable pmix("PMIX_RANK", "1");  // MPI's count more
  CHECK(!launched_by_torch());
}

TEST_CASE("a connection to the launcher that a program in between has closed is named") {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  const Variable size("PMI_SIZE", "2");
  CHECK_NOTHROW(check_connection(find_launcher()));  // not every launcher has PMI_FD
  const std::string number = std::to_string(ends[0]);
  const Variable connection("PMI_FD", number.c_str());
  CHECK_NOTHROW(check_connection(find_launcher()));
  CHECK_NOTHROW(check_connection({}));
  close(ends[0]);
  close(ends[1]);
  const auto refusal = [] { check_connection(find_launcher()); };
  holds(message_of<TopologyError>(refusal), "PMI_FD is " + number);
  const int file = open("/dev/null", O_RDONLY);  // takes the place of the connection
  holds(message_of<TopologyError>(refusal), "torchrun alone");
  close(file);
  {
    // Open MPI's mpirun inside MPICH's does not use it.
    const Variable inner("OMPI_COMM_WORLD_SIZE", "2");
    CHECK_NOTHROW(check_connection(find_launcher()));
  }
}

TEST_CASE("a transport that does not exist or does not fit is refused") {
  int argc = 0;
  char** argv = nullptr;
  const Variable forced("ZERO_TRANSPORT", "carrier-pigeon");
  CHECK_THROWS_AS(create_world(argc, argv, {}), ConfigError);
  const Variable alone("ZERO_TRANSPORT", "self");
  CHECK(create_world(argc, argv, {})->topology().size == 1);
  const Variable size("PMI_SIZE", "2");
  CHECK_THROWS_AS(create_world(argc, argv, {}), TopologyError);
}

TEST_CASE("a valid limit of the start in the environment wins") {
  CHECK(chosen_start_limit({}) == std::chrono::minutes(2));
  WorldOptions options;
  options.start_limit = std::chrono::seconds(3);
  CHECK(chosen_start_limit(options) == std::chrono::seconds(3));
  const Variable set("ZERO_START_LIMIT", "0.5");
  CHECK(chosen_start_limit({}) == std::chrono::milliseconds(500));
  for (const char* wrong : {"soon", "0", "-1", "1s", "nan"}) {
    const Variable variable("ZERO_START_LIMIT", wrong);
    CHECK_THROWS_AS(chosen_start_limit({}), ConfigError);
  }
}

}  // namespace zero::comm::testing
