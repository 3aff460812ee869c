// The host part of the NCCL transport, over a replacement of NCCL: the calls to it, their order,
// and its failures.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "comm/nccl/connect.h"
#include "comm/nccl/nccl_communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/fake_gpu.h"
#include "tests/comm/fake_nccl.h"
#include "tests/comm/thread_ranks.h"
#include "tests/support/stderr_of.h"

namespace {

using namespace zero;
using namespace zero::comm;
using namespace zero::comm::testing;
using std::chrono::milliseconds;

std::unique_ptr<Communicator> connected(World& world, const std::shared_ptr<FakeNccl>& api) {
  FakeGpu gpu(world.topology().rank);
  nccl::ConnectOptions options;
  options.load = [api] { return api; };
  options.abort_job = false;
  return nccl::connect(world.communicator(), gpu, options);
}

void set_deterministic(Communicator& communicator) {
  CallTerms terms = communicator.terms();
  terms.deterministic = true;
  communicator.set_terms(terms);
}

template <class Matches>
void wait_for(const Matches& matches) {
  for (int i = 0; i < 5000 && !matches(); ++i) std::this_thread::sleep_for(milliseconds(1));
  CHECK(matches());
}

}  // namespace

TEST_CASE("nccl: every operation keeps the promises of communicator.h in deterministic mode") {
  for (const int ranks : {2, 3, 4})
    on_thread_ranks(ranks, [&](World& world) {
      const auto api = std::make_shared<FakeNccl>(world.communicator());
      const auto communicator = connected(world, api);
      set_deterministic(*communicator);
      Suite suite;
      suite.counts = {0, 1, 127, 128, 1000};
      suite.barriers = false;
      const std::int64_t bytes = largest_buffer(suite, ranks);
      std::vector<std::vector<std::byte>> buffers(
          3, std::vector<std::byte>(static_cast<std::size_t>(bytes)));
      communicator->use_staging(buffers[2].data(), bytes);
      CHECK(run_suite(*communicator, suite, [&](int number, std::int64_t) {
              return buffers[static_cast<std::size_t>(number)].data();
            }) > 100);
    });
}

TEST_CASE("nccl: without deterministic mode sums are NCCL's own, strided ones too") {
  on_thread_ranks(3, [](World& world) {
    const auto api = std::make_shared<FakeNccl>(world.communicator());
    const auto communicator = connected(world, api);
    CHECK(communicator->staging_bytes(1000, DType::fp32) == 0);
    for (const std::int64_t stride : {2, 5}) {
      std::vector<float> send(static_cast<std::size_t>(3 * stride), 1.f), sum(2);
      communicator->reduce_scatter(send.data(), sum.data(), 2, DType::fp32, stride);
      CHECK(sum == std::vector<float>{3, 3});
    }
  });
}

TEST_CASE("nccl: sums in order report the staging that they lack") {
  on_thread_ranks(2, [](World& world) {
    const auto communicator = connected(world, std::make_shared<FakeNccl>(world.communicator()));
    set_deterministic(*communicator);
    CHECK(communicator->staging_bytes(128, DType::bf16) == 512);
    CHECK(communicator->staging_bytes(128, DType::int64) == 0);
    std::vector<float> send(4), sum(2);
    CHECK_THROWS_AS(communicator->reduce_scatter(send.data(), sum.data(), 2, DType::fp32),
                    UsageError);
  });
}

TEST_CASE("nccl: two ranks on one GPU are refused with the reason") {
  const auto connect_to_one = [] {
    on_thread_ranks(2, [](World& world) {
      FakeGpu gpu(4);
      const auto api = std::make_shared<FakeNccl>(world.communicator());
      nccl::ConnectOptions options;
      options.load = [api] { return api; };
      nccl::connect(world.communicator(), gpu, options);
    });
  };
  CHECK_THROWS_WITH_AS(connect_to_one(), doctest::Contains("ranks 0 and 1 would share one GPU"),
                       TopologyError);
}

namespace {

// Joins on a GPU that ranks may share; `broken`: NCCL fails. Returns the printed text.
std::string join_shared(bool was_open, bool broken) {
  return zero::tests::stderr_of([&] {
    on_thread_ranks(1, [&](World& world) {
      FakeGpu gpu(4);
      const auto api = std::make_shared<FakeNccl>(world.communicator());
      api->broken = broken;
      nccl::ConnectOptions options;
      options.load = [api] { return api; };
      options.is_open = [&] { return was_open; };
      options.share_gpu = true;
      if (broken)
        CHECK_THROWS_AS(nccl::connect(world.communicator(), gpu, options), Error);
      else
        nccl::connect(world.communicator(), gpu, options);
    });
  });
}

}  // namespace

TEST_CASE("nccl: an environment that came too late is named if joining fails") {
  CHECK(join_shared(true, false) == "");  // torch opens NCCL without using it
  CHECK(join_shared(false, true) == "");
  CHECK(join_shared(true, true).find("this process had opened NCCL before") != std::string::npos);
}

TEST_CASE("nccl: a shared GPU makes every process a host of its own") {
  setenv("NCCL_NET", "IB", 1);
  nccl::set_shared_gpu_environment(3);
  CHECK(std::string(std::getenv("NCCL_NET")) == "Socket");
  CHECK(std::string(std::getenv("NCCL_HOSTID")).ends_with("-3"));
  CHECK(std::string(std::getenv("NCCL_MAX_CTAS")) == "2");
  for (const char* name :
       {"NCCL_HOSTID", "NCCL_NET", "NCCL_SOCKET_IFNAME", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE",
        "NCCL_NVLS_ENABLE", "NCCL_MNNVL_ENABLE", "NCCL_IB_DISABLE", "NCCL_RAS_ENABLE",
        "NCCL_MAX_CTAS", "NCCL_MULTI_RANK_GPU_ENABLE"}) {
    CHECK(std::getenv(name) != nullptr);
    unsetenv(name);
  }
}

TEST_CASE("nccl: joining ends at its limit, and a failure has NCCL's text") {
  on_thread_ranks(1, [](World& world) {
    FakeNccl api(world.communicator());
    api.polls_to_join = 1 << 30;
    nccl::Id id = api.make_id();
    const nccl::Handle handle = api.begin_join(id, 1, 0);
    CHECK_THROWS_WITH_AS(nccl::await_progress(api, handle, milliseconds(20), "rank 0: joining"),
                         doctest::Contains("rank 0: joining took longer than 20 ms"), StalledError);
    api.broken = true;
    CHECK_THROWS_WITH_AS(nccl::await_progress(api, handle, milliseconds(20), "rank 0: joining"),
                         "rank 0: joining: fake: unhandled system error", Error);
  });
}

namespace {

// A guard over the replacement, for failures.
struct Guarded {
  explicit Guarded(Communicator& host) : api(std::make_shared<FakeNccl>(host)) {}

  nccl::GuardOptions options(bool may_exit = false) {
    nccl::GuardOptions o;
    o.api = api;
    o.check_peers = [this] {
      if (peer_failed) throw PeerFailed("rank 1: out of luck", 13);
    };
    o.may_exit = may_exit;
    o.exit = [this](int code, const std::string& why) {
      cause = why;
      exit_code = code;
    };
    o.abort_limit = milliseconds(50);
    o.tick = milliseconds(1);
    return o;
  }

  std::shared_ptr<FakeNccl> api;
  std::atomic<bool> peer_failed{false};
  std::string cause;  // before exit_code
  std::atomic<int> exit_code{0};
};

}  // namespace

TEST_CASE("nccl: an operation that does not end is aborted at the limit and named") {
  on_thread_ranks(1, [](World& world) {
    Guarded guarded(world.communicator());
    guarded.api->events_complete = false;
    nccl::Guard guard(guarded.options());
    for (const char* what :
         {"all_gather of unit h.3 (call 7)", "reduce_scatter of unit h.4 (call 8)"}) {
      guard.announce(what, milliseconds(30));
      guard.launched(guarded.api->mark({}));
    }
    wait_for([&] { return guard.aborted(); });
    CHECK_THROWS_WITH_AS(guard.check(), doctest::Contains("all_gather of unit h.3 (call 7) and 1 "),
                         StalledError);
    CHECK(guarded.api->aborts == 1);
    CHECK_FALSE(guard.leaked());
  });
}

TEST_CASE("nccl: while a communicator is split, one thread alone asks NCCL about it") {
  on_thread_ranks(2, [](World& world) {
    Guarded guarded(world.communicator());
    guarded.api->polls_to_join = 50;
    const int rank = world.topology().rank;
    nccl::GuardOptions options = guarded.options();
    options.communicator = guarded.api->begin_join(guarded.api->make_id(), 2, rank);
    nccl::NcclCommunicator joined(rank, 2, std::make_shared<nccl::Connection>(options, nullptr));
    const auto part = joined.split(0, joined.rank());
    CHECK(part->size() == 2);
    CHECK(guarded.api->asked_beside_split == 0);
  });
}

TEST_CASE("nccl: a split ends when a peer has failed") {
  on_thread_ranks(1, [](World& world) {
    Guarded guarded(world.communicator());
    guarded.api->polls_to_join = 1 << 30;
    nccl::GuardOptions options = guarded.options();
    options.communicator = guarded.api->begin_join(guarded.api->make_id(), 1, 0);
    nccl::NcclCommunicator joined(0, 1, std::make_shared<nccl::Connection>(options, nullptr));
    joined.set_time_limit(milliseconds(60'000));
    std::thread peer([&] {
      std::this_thread::sleep_for(milliseconds(20));
      guarded.peer_failed = true;
    });
    CHECK_THROWS_WITH_AS(joined.split(0, 0), "rank 1: out of luck", PeerFailed);
    peer.join();
  });
}

TEST_CASE("nccl: a guard that NCCL keeps does not keep the program's thread") {
  on_thread_ranks(1, [](World& world) {
    Guarded guarded(world.communicator());
    guarded.api->progress_blocks = true;
    nccl::Guard guard(guarded.options());
    wait_for([&] { return guarded.api->asked > 0; });
    std::atomic<bool> done{false};
    std::thread program([&] {
      guard.announce("all_gather of unit h.3 (call 1)", milliseconds(60'000));
      guard.launched(guarded.api->mark({}));
      guard.check();
      done = true;
    });
    wait_for([&] { return done.load(); });
    guarded.api->progress_blocks = false;
    program.join();
  });
}

TEST_CASE("nccl: a call that does not return ends the process at the limit, with its name") {
  on_thread_ranks(1, [](World& world) {
    Guarded guarded(world.communicator());
    nccl::Guard guard(guarded.options(true));
    guard.announce("all_gather of unit h.3 (call 1)", milliseconds(30));
    const nccl::Guard::Inside inside(guard);
    wait_for([&] { return guarded.exit_code != 0; });
    CHECK(guarded.cause.find("all_gather of unit h.3 (call 1)") != std::string::npos);
    CHECK(guarded.exit_code == StalledError::code);
  });
}

TEST_CASE("nccl: the split of a blocking communicator ends when a peer has failed") {
  on_thread_ranks(1, [](World& world) {
    Guarded guarded(world.communicator());
    guarded.api->split_blocks = true;
    nccl::GuardOptions options = guarded.options(true);
    options.communicator = guarded.api->begin_join(guarded.api->make_id(), 1, 0);
    options.blocking = true;
    auto connection = std::make_shared<nccl::Connection>(options, nullptr);
    nccl::NcclCommunicator part(0, 1, connection);
    part.set_time_limit(milliseconds(60'000));
    std::thread splitting([&] { CHECK_THROWS(part.split(0, 0)); });
    wait_for([&] { return guarded.api->splitting.load(); });
    guarded.peer_failed = true;
    wait_for([&] { return guarded.exit_code == 13; });
    CHECK(guarded.cause == "rank 1: out of luck");
    guarded.api->split_blocks = false;
    splitting.join();
  });
}

TEST_CASE("nccl: a failure between two calls of a group leaves no group open") {
  on_thread_ranks(2, [](World& world) {
    const auto api = std::make_shared<FakeNccl>(world.communicator());
    const auto communicator = connected(world, api);
    api->refuses_sends = true;
    std::vector<float> send(4), recv(4);
    CHECK_THROWS_AS(communicator->all_to_all(send.data(), recv.data(), 2, DType::fp32), Error);
    CHECK(api->open_groups == 0);
    CHECK_NOTHROW(communicator->check());
  });
}

TEST_CASE("nccl: a peer's failure and NCCL's own end the communicator") {
  on_thread_ranks(1, [](World& world) {
    Guarded peer(world.communicator());
    nccl::Guard by_peer(peer.options());
    CHECK_NOTHROW(by_peer.check());
    peer.peer_failed = true;
    wait_for([&] { return by_peer.aborted(); });
    try {
      by_peer.check();
      FAIL("nothing was thrown");
    } catch (const PeerFailed& error) {
      CHECK(std::string(error.what()) == "rank 1: out of luck");
      CHECK(error.exit_code() == 13);
    }
    Guarded own(world.communicator());
    nccl::Guard by_nccl(own.options());
    own.api->broken = true;
    wait_for([&] { return by_nccl.aborted(); });
    CHECK_THROWS_WITH_AS(by_nccl.check(), "NCCL failed: fake: unhandled system error", PeerFailed);
  });
}

TEST_CASE(
    "nccl: no abort while a thread is inside NCCL; then the process is ended, or the handle "
    "leaked") {
  on_thread_ranks(1, [](World& world) {
    for (const bool may_exit : {false, true}) {
      Guarded guarded(world.communicator());
      nccl::Guard guard(guarded.options(may_exit));
      const nccl::Guard::Inside inside(guard);
      guarded.peer_failed = true;
      wait_for([&] { return guard.leaked(); });
      CHECK(guarded.api->aborts == 0);
      wait_for([&] { return guarded.exit_code == (may_exit ? 13 : 0); });
    }
  });
}

TEST_CASE("nccl: an abort that blocks is not waited for") {
  on_thread_ranks(1, [](World& world) {
    Guarded guarded(world.communicator());
    guarded.api->abort_blocks = true;
    {
      nccl::Guard guard(guarded.options(true));
      guarded.peer_failed = true;
      wait_for([&] { return guard.leaked(); });
      wait_for([&] { return guarded.exit_code == 13; });
      CHECK_FALSE(guard.aborted());
    }
    guarded.api->abort_blocks = false;
    wait_for([&] { return guarded.api.use_count() == 1; });
  });
}

TEST_CASE("nccl: a communicator that the guard gave up is not destroyed, a sound one is") {
  on_thread_ranks(1, [](World& world) {
    Guarded sound(world.communicator());
    { nccl::Connection connection(sound.options(), nullptr); }
    CHECK(sound.api->destroyed == 1);
    Guarded broken(world.communicator());
    {
      nccl::Connection connection(broken.options(), nullptr);
      broken.api->broken = true;
      wait_for([&] { return connection.guard().aborted(); });
    }
    CHECK(broken.api->destroyed == 0);
  });
}

TEST_CASE("nccl: a registration ends once, with its arena or with the communicator") {
  on_thread_ranks(2, [](World& world) {
    const auto api = std::make_shared<FakeNccl>(world.communicator());
    auto communicator = connected(world, api);
    for (const bool withdrawn : {true, false}) {
      const Arena arena(8192, Arena::Sharing::private_memory, "a test");
      communicator->share(arena);
      CHECK(api->registered == 8192);
      if (withdrawn) communicator->withdraw(arena);
      if (!withdrawn) communicator.reset();
    }
    CHECK(api->calls == "register deregister register deregister destroy destroy ");
  });
}

TEST_CASE("nccl: memory whose registration is refused is used without it") {
  on_thread_ranks(1, [](World& world) {
    const auto api = std::make_shared<FakeNccl>(world.communicator());
    const auto communicator = connected(world, api);
    api->refuses_registration = true;
    const Arena arena(4096, Arena::Sharing::private_memory, "a test");
    CHECK_NOTHROW(communicator->share(arena));
    CHECK(api->registered == 0);
  });
}

TEST_CASE("nccl: registrations stay if a communicator could not be ended") {
  on_thread_ranks(1, [](World& world) {
    Guarded guarded(world.communicator());
    const auto connection = std::make_shared<nccl::Connection>(guarded.options(), nullptr);
    nccl::NcclCommunicator communicator(0, 1, connection);
    const Arena arena(4096, Arena::Sharing::private_memory, "a test");
    communicator.share(arena);
    const nccl::Guard::Inside inside(connection->guard());
    guarded.peer_failed = true;
    wait_for([&] { return connection->guard().leaked(); });
    communicator.withdraw(arena);
    CHECK(guarded.api->calls == "register ");
  });
}
