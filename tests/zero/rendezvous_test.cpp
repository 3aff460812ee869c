// A program whose ranks find each other by the program's own rendezvous.
#include "zero/rendezvous.h"

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/rendezvous.h"

namespace {

using namespace zero;
using std::chrono::milliseconds;
using zero::comm::testing::MemoryRendezvous;
using zero::comm::testing::Noticeboard;

RuntimeOptions options_of(std::shared_ptr<Rendezvous> rendezvous) {
  RuntimeOptions options;
  options.rendezvous = std::move(rendezvous);
  options.abort_job = false;
  options.catch_signals = false;
  options.threads = 1;
  return options;
}

}  // namespace

TEST_CASE("ranks of a program's own rendezvous sum, meet at its barrier, and learn of a failure") {
  const auto board = std::make_shared<Noticeboard>();
  std::atomic<int> arrived{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      const auto rendezvous = std::make_shared<MemoryRendezvous>(board, rank, 2);
      int argc = 0;
      char** argv = nullptr;
      Runtime runtime(argc, argv, options_of(rendezvous));
      CHECK(runtime.rank() == rank);
      CHECK(runtime.describe().starts_with("shm over 2 ranks"));
      CHECK(runtime.sum(rank + 1.0) == 3.0);
      ++arrived;
      rendezvous->barrier("all", milliseconds(5000));
      CHECK(arrived == 2);
      if (rank == 1) {
        CHECK(runtime.give_up("the data has ended", LoadError::code));
        runtime.abort(LoadError::code);  // returns, since the job is the program's
        return;
      }
      try {
        runtime.sum(1.0);
        FAIL("a rank has failed, and the other one has a sum");
      } catch (const PeerFailed& failed) {
        CHECK(failed.exit_code() == LoadError::code);
        CHECK(std::string(failed.what()).find("rank 1 failed: the data has ended") !=
              std::string::npos);
        CHECK_FALSE(runtime.give_up(failed.what(), failed.exit_code()));
      }
    });
  for (std::thread& rank : ranks) rank.join();
}
