// Checkpoints that are written after queued steps of a device whose streams run in any order: the
// state of their own step, no wait of the host, and the handling of failures.
#include <doctest/doctest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "tests/support/mock_ranks.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/checkpoint/posix_files.h"

namespace {

using zero::checkpoint::CheckpointReader;
using zero::checkpoint::FileEvent;
using zero::checkpoint::FileOp;
using zero::tests::TemporaryDirectory;

constexpr toy::Dims dims{.vocabulary = 31, .channels = 72, .blocks = 3, .batch = 2};

zero::Config config_of(int stage, bool bf16 = true) {
  zero::Config config = toy::config(stage, dims);
  config.bf16_enabled = bf16;
  config.checkpoint.decoupled = true;
  return config;
}

void with_engine(int ranks, mock::Order order, std::uint64_t seed, const zero::Config& config,
                 const std::function<void(zero::Runtime&, zero::Engine&)>& body) {
  mock::run_ranks(ranks, order, seed, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims), config);
    engine.initialize(toy::fill);
    body(runtime, engine);
  });
}

// Trains on without waiting for the last queued step.
class Trainer {
 public:
  Trainer(zero::Runtime& runtime, zero::Engine& engine)
      : engine_(engine), launch_(runtime), runtime_(runtime) {}
  // Waits for all kernels.
  ~Trainer() { engine_.digest(); }
  Trainer(const Trainer&) = delete;

  void step() {
    for (zero::MicroStep micro : engine_.micro_steps()) {
      const std::int64_t first =
          (engine_.step_count() * runtime_.size() + runtime_.rank()) * dims.batch;
      launch_([this, first] { toy::load_samples(dims, activations_, first); });
      if (engine_.compute_dtype() == zero::DType::bf16)
        mock::queue_micro_step<zero::bf16>(engine_, dims, activations_, micro, &loss_, launch_);
      else
        mock::queue_micro_step<float>(engine_, dims, activations_, micro, &loss_, launch_);
    }
    const zero::StepTicket ticket = engine_.step();
    if (previous_) previous_->wait();
    previous_ = ticket;
  }

 private:
  zero::Engine& engine_;
  const mock::Launcher launch_;
  zero::Runtime& runtime_;
  toy::Activations activations_ = toy::make_activations(dims);
  float loss_ = 0;
  std::optional<zero::StepTicket> previous_;
};

// Saves after steps that may still run, and before others; none of them waits for the save.
void check_save(int ranks, const zero::Config& config, mock::Order order, std::uint64_t seed) {
  const TemporaryDirectory directory;
  const std::string root = directory / "root";
  std::uint64_t saved = 0;
  with_engine(ranks, order, seed, config, [&](zero::Runtime& runtime, zero::Engine& engine) {
    const std::uint64_t digest = mock::train_until(runtime, engine, 2, dims).digest;
    if (runtime.is_root()) saved = digest;
    CHECK(engine.save_checkpoint(root, {.tag = "at-once", .asynchronous = false}).wait());
  });
  with_engine(ranks, order, seed, config, [&](zero::Runtime& runtime, zero::Engine& engine) {
    Trainer trainer(runtime, engine);
    trainer.step();
    trainer.step();
    const zero::SaveTicket ticket = engine.save_checkpoint(root, {.tag = "behind"});
    for (int step = 0; step < 4; ++step) trainer.step();
    CHECK(engine.digest() != saved);
    CHECK(ticket.wait());
    CHECK(engine.resume(root)->step == 2);
    CHECK(engine.digest() == saved);
  });
  CheckpointReader at_once(root + "/at-once"), behind(root + "/behind");
  behind.verify();
  REQUIRE(behind.manifest().files.size() == static_cast<std::size_t>(ranks));
  for (std::size_t f = 0; f < behind.manifest().files.size(); ++f)
    CHECK(behind.manifest().files[f].chunks == at_once.manifest().files[f].chunks);
}

}  // namespace

TEST_CASE("a save behind a device's steps has the state of its own step, in any order of streams") {
  std::uint64_t seed = 0;
  for (const auto order :
       {mock::Order::compute_first, mock::Order::communication_first, mock::Order::one_last,
        mock::Order::one_last, mock::Order::one_last, mock::Order::random}) {
    CAPTURE(static_cast<int>(order));
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(stage);
      for (const int ranks : {1, 2})
        check_save(ranks, config_of(stage, stage % 2 == 1), order, seed++);
    }
    for (const char* type : {"Lamb", "Muon", "Adafactor"}) {
      zero::Config config = config_of(2);
      config.optimizer = zero::optim::default_options(type);
      config.optimizer.learning_rate = 0.01;
      CAPTURE(type);
      check_save(2, config, order, seed++);
    }
    for (const double ratio : {0.5, 1.0})
      for (const bool bf16 : {false, true}) {
        zero::Config config = config_of(2, bf16);
        config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
        config.zero_optimization.offload_optimizer.ratio = ratio;
        config.zero_core.offload_chunk_bytes = 1;
        CAPTURE(ratio);
        check_save(2, config, order, seed++);
      }
  }
}

TEST_CASE("the host waits for no copy of a save, and the ranks find out that it is on disk") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root";
  with_engine(
      2, mock::Order::random, 11, config_of(3), [&](zero::Runtime& runtime, zero::Engine& engine) {
        Trainer trainer(runtime, engine);
        auto& scheduler = static_cast<mock::Device&>(runtime.core().device()).scheduler();
        for (int s = 0; s < 3; ++s) trainer.step();
        engine.save_checkpoint(root, {.tag = "first"});
        const auto on_disk = [&] { return std::filesystem::exists(root + "/first") ? 1 : 0; };
        do {
          const int waits = scheduler.waits();
          trainer.step();
          if (engine.step_count() > 5) CHECK(scheduler.waits() - waits <= 1);
        } while (runtime.sum(on_disk()) < 2);
        engine.save_checkpoint(root, {.tag = "second"});
        trainer.step();
      });
  // The engine's destructor waits for the last save.
  for (const char* tag : {"first", "second"}) CheckpointReader(root + "/" + tag).verify();
}

TEST_CASE("a save that fails behind a device's steps is thrown by a step of all ranks, or told") {
  for (const bool goes_on : {false, true})
    for (const FileOp op : {FileOp::create, FileOp::write, FileOp::rename}) {
      const TemporaryDirectory directory;
      const std::string root = directory / "root";
      zero::Config config = config_of(3);
      config.zero_core.on_save_error = goes_on ? "continue" : "stop";
      with_engine(
          2, mock::Order::random, 5, config, [&](zero::Runtime& runtime, zero::Engine& engine) {
            engine.open_checkpoints(root);
            runtime.sum(0);
            if (runtime.is_root())
              zero::checkpoint::set_file_hook([op](const FileEvent& event) {
                const bool mine =
                    zero::tests::contains(event.path, "00002-of") || event.op == FileOp::rename;
                return event.op == op && mine ? ENOSPC : 0;
              });
            runtime.sum(0);
            const zero::SaveTicket ticket = engine.save_checkpoint(root, {.tag = "lost"});
            std::string words;
            for (int step = 1; words.empty() && step < (goes_on ? 8 : 100'000); ++step)
              words = zero::tests::refusal<zero::SaveError>(
                  [&] { mock::train_until(runtime, engine, step, dims); });
            if (goes_on) CHECK(!ticket.wait());
            runtime.sum(0);
            if (runtime.is_root()) zero::checkpoint::set_file_hook({});
            runtime.sum(0);
            CHECK(zero::tests::contains(words, "No space left on device") != goes_on);
            CHECK(engine.save_checkpoint(root, {.tag = "kept"}).wait());
          });
      CHECK(!std::filesystem::exists(root + "/lost"));
      CheckpointReader(root + "/kept").verify();
    }
}

TEST_CASE("a program that fails with a save behind it ends, without that save") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root";
  CHECK_THROWS_WITH(with_engine(2, mock::Order::compute_first, 1, config_of(2),
                                [&](zero::Runtime&, zero::Engine& engine) {
                                  engine.save_checkpoint(root, {.tag = "lost"});
                                  throw zero::UsageError("the program's own");
                                }),
                    "the program's own");
  CHECK(!std::filesystem::exists(root + "/lost"));
}

TEST_CASE("the staging of saves is page-locked host memory of the size of the file, and planned") {
  mock::run_ranks(2, mock::Order::random, 1, [](zero::Runtime& runtime) {
    for (const bool on : {false, true}) {
      zero::Config config = config_of(3);
      config.checkpoint.decoupled = on;
      const zero::Engine engine(runtime, toy::describe(dims), config);
      const zero::Ledger& ledger = runtime.core().ledger();
      for (const zero::Tier tier : {zero::Tier::host, zero::Tier::pinned}) {
        const zero::MemoryAccount& account =
            ledger.account(zero::MemoryCategory::checkpoints, tier);
        CHECK(account.planned == (on ? std::int64_t{1} << 20 : 0));
        CHECK(account.current == account.planned);
      }
      CHECK(ledger.account(zero::MemoryCategory::checkpoints).planned == 0);
    }
    for (const zero::Tier tier : {zero::Tier::host, zero::Tier::pinned})
      CHECK(runtime.core().ledger().total(tier).planned == 0);
  });
}
