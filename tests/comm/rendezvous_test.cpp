// Worlds of ranks that find each other by a Rendezvous. Ranks are threads here, each with a world
// of processes, since it makes no difference that they share one process.
#include <doctest/doctest.h>

#include <functional>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "tests/comm/rendezvous.h"
#include "zero/base/error.h"

namespace {

using namespace zero;
using namespace zero::comm;
using std::chrono::milliseconds;
using zero::comm::testing::MemoryRendezvous;
using zero::comm::testing::Noticeboard;

struct Ended {
  int code = 0;
  std::string text;
};

WorldOptions options_of(const std::shared_ptr<Noticeboard>& board, int rank, int size) {
  WorldOptions options;
  options.rendezvous = std::make_shared<MemoryRendezvous>(board, rank, size);
  options.start_limit = milliseconds(5000);
  options.time_limit = milliseconds(5000);
  options.abort_job = false;
  return options;
}

// Returns each rank's exception, by rank.
std::vector<Ended> run_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<Ended> ended(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const Error& error) {
        ended[static_cast<std::size_t>(r)] = {error.exit_code(), error.what()};
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ended;
}

std::unique_ptr<World> open(const WorldOptions& options) {
  int argc = 0;
  char** argv = nullptr;
  return create_world(argc, argv, options);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks that met at a rendezvous work over shared memory, several times") {
  for (const int ranks : {1, 2, 3}) {
    const auto board = std::make_shared<Noticeboard>();
    const auto ended = run_ranks(ranks, [&](int rank) {
      WorldOptions options = options_of(board, rank, ranks);
      for (int job = 0; job < 2; ++job) {  // the second job uses other keys than the first
        const auto world = open(options);
        CHECK(world->topology().rank == rank);
        CHECK(world->topology().local_size == ranks);
        CHECK(world->communicator().transport() == (ranks == 1 ? "self" : "shm"));
        std::int64_t value = rank + 1;
        world->communicator().all_reduce(&value, 1, DType::int64);
        CHECK(value == ranks * (ranks + 1) / 2);
      }
    });
    for (const Ended& end : ended) CHECK_MESSAGE(end.code == 0, end.text);
  }
}

TEST_CASE("ranks that count different numbers of ranks are named") {
  for (const int differing : {1, 2}) {
    const auto board = std::make_shared<Noticeboard>();
    const auto ended = run_ranks(2, [&](int rank) {
      // Rank 1 counts 3 ranks, or rank 2, of which the others know nothing, does.
      open(options_of(board, rank == 0 ? 0 : differing, rank == 0 ? 2 : 3));
    });
    CHECK(ended[1].code == TopologyError::code);
    CHECK_MESSAGE(contains(ended[1].text, "is one of 3 ranks, and rank 0 one of 2"), ended[1].text);
    if (differing == 1) CHECK_MESSAGE(contains(ended[0].text, "is one of 3 ranks"), ended[0].text);
  }
}

TEST_CASE("a missing rank is named on all ranks, within the start limit") {
  const auto board = std::make_shared<Noticeboard>();
  const auto begin = std::chrono::steady_clock::now();
  // Ranks 1 and 3 of four are missing.
  const auto ended = run_ranks(2, [&](int thread) {
    WorldOptions options = options_of(board, 2 * thread, 4);
    options.start_limit = milliseconds(300);
    open(options);
  });
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3));
  CHECK(ended[0].code == StalledError::code);
  CHECK_MESSAGE(contains(ended[0].text, "ranks 1, 3 did not come to the board"), ended[0].text);
  CHECK(ended[1].code == StalledError::code);
  CHECK_MESSAGE(contains(ended[1].text, "ranks 1, 3 did not come"), ended[1].text);
}

TEST_CASE("rank 0 keeps the place open until the ranks that came have read why it fails") {
  const auto board = std::make_shared<Noticeboard>();
  board->delay = milliseconds(50);
  const auto ended = run_ranks(2, [&](int thread) {
    WorldOptions options = options_of(board, 2 * thread, 3);
    options.start_limit = milliseconds(300);
    try {
      open(options);
    } catch (const Error&) {
      if (thread == 0) {
        const std::lock_guard lock(board->mutex);
        board->closed = true;
      }
      throw;
    }
  });
  for (const Ended& end : ended) {
    CHECK(end.code == StalledError::code);
    CHECK_MESSAGE(contains(end.text, "rank 1 did not come to the board"), end.text);
  }
}

TEST_CASE("without rank 0 the others report that it is missing") {
  const auto board = std::make_shared<Noticeboard>();
  const auto ended = run_ranks(1, [&](int) {
    WorldOptions options = options_of(board, 1, 2);
    options.start_limit = milliseconds(100);
    open(options);
  });
  CHECK(ended[0].code == StalledError::code);
  CHECK_MESSAGE(contains(ended[0].text, "rank 0 did not come to the board"), ended[0].text);
}

TEST_CASE("a problem of one rank ends all with its text and code") {
  const auto board = std::make_shared<Noticeboard>();
  const auto ended = run_ranks(3, [&](int rank) {
    WorldOptions options = options_of(board, rank, 3);
    if (rank == 1) options.transport = "pigeon";
    open(options);
  });
  for (const Ended& end : ended) {
    CHECK(end.code == ConfigError::code);
    CHECK_MESSAGE(contains(end.text, "\"pigeon\""), end.text);
  }
}

TEST_CASE("transports that these ranks cannot have are refused on all ranks") {
  const auto try_transports = [](const std::string& first, const std::string& second) {
    const auto board = std::make_shared<Noticeboard>();
    return run_ranks(2, [&](int rank) {
      WorldOptions options = options_of(board, rank, 2);
      options.transport = rank == 0 ? first : second;
      open(options);
    });
  };
  for (const Ended& end : try_transports("shm", "auto"))
    CHECK_MESSAGE(contains(end.text, "rank 0 asks for transport shm, rank 1 for auto"), end.text);
  for (const Ended& end : try_transports("mpi", "mpi"))
    CHECK_MESSAGE(contains(end.text, "transport mpi is for ranks that an MPI launcher"), end.text);
  for (const Ended& end : try_transports("gloo", "gloo"))
    CHECK_MESSAGE(contains(end.text, "the board has no messages between hosts"), end.text);
  for (const Ended& end : try_transports("self", "self"))
    CHECK_MESSAGE(contains(end.text, "transport self is for one rank"), end.text);
}

TEST_CASE("a failure on one rank is the others' first cause") {
  const auto board = std::make_shared<Noticeboard>();
  const auto ended = run_ranks(3, [&](int rank) {
    const auto world = open(options_of(board, rank, 3));
    if (rank == 2) {
      CHECK(world->fail("the disk is full", SaveError::code));
      return;
    }
    std::int64_t value = 0;
    world->communicator().all_reduce(&value, 1, DType::int64);
  });
  for (const int rank : {0, 1}) {
    CHECK(ended[static_cast<std::size_t>(rank)].code == SaveError::code);
    CHECK_MESSAGE(contains(ended[static_cast<std::size_t>(rank)].text, "rank 2 failed: the disk"),
                  ended[static_cast<std::size_t>(rank)].text);
  }
}
