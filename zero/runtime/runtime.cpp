#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <thread>

#include "comm/environment.h"
#include "zero/base/last_words.h"
#include "zero/base/run_marks.h"
#include "zero/runtime/fingerprint.h"
#include "zero/runtime/outcome.h"
#include "zero/runtime/runtime_core.h"
#include "zero/runtime/stop_signals.h"

namespace zero {

namespace {

std::unique_ptr<comm::World> open_world(int& argc, char**& argv, const RuntimeOptions& options) {
  // The shared memory taken at start may exceed the limit too.
  if (options.catch_signals) detail::ignore_system_signals();
  return comm::create_world(argc, argv, detail::world_options(options));
}

}  // namespace

Runtime::Runtime(std::unique_ptr<detail::RuntimeCore> core) : core_(std::move(core)) {}

Runtime::Runtime(int& argc, char**& argv, RuntimeOptions options)
    : core_(std::make_unique<detail::RuntimeCore>(open_world(argc, argv, options), options)) {}

Runtime Runtime::single(RuntimeOptions options) {
  const comm::WorldOptions world = detail::world_options(options);
  return Runtime(
      std::make_unique<detail::RuntimeCore>(comm::create_single_world(world), std::move(options)));
}

Runtime::Runtime(Runtime&&) noexcept = default;
Runtime::~Runtime() = default;

int Runtime::rank() const {
  return core_->topology().rank;
}
int Runtime::size() const {
  return core_->topology().size;
}
int Runtime::local_rank() const {
  return core_->world().topology().local_rank;
}
int Runtime::local_size() const {
  return core_->world().topology().local_size;
}
int Runtime::tensor_rank() const {
  return core_->tensor() != nullptr ? core_->tensor()->topology().rank : 0;
}
int Runtime::tensor_size() const {
  return core_->options().tensor_ranks;
}
int Runtime::pipeline_stage() const {
  return core_->pipe() != nullptr ? core_->pipe()->topology().rank : 0;
}
int Runtime::pipeline_stages() const {
  return core_->options().pipeline_stages;
}
bool Runtime::is_root() const {
  return rank() == 0 && (core_->pipe() == nullptr || core_->pipe()->topology().rank == 0);
}
int Runtime::threads() const {
  return core_->pool().threads();
}
ThreadPool& Runtime::pool() {
  return core_->pool();
}
Stream Runtime::stream() const {
  return core_->compute().native();
}
std::string Runtime::describe() const {
  return core_->describe();
}

namespace {

detail::Ranks& ranks_of(detail::RuntimeCore& core, Over over) {
  return over == Over::all_ranks ? core.everyone() : core.ranks();
}

// In blocks, because every rank's values are in memory at once.
void sum_over(detail::Ranks& ranks, std::span<double> values) {
  constexpr std::size_t most = 1 << 16;
  for (; !values.empty(); values = values.subspan(std::min(most, values.size()))) {
    const std::span<double> block = values.first(std::min(most, values.size()));
    std::vector<std::int64_t> words;
    for (const double value : block) words.push_back(std::bit_cast<std::int64_t>(value));
    const std::vector<std::int64_t> all = ranks.gather_words("Runtime::sum", words);
    std::fill(block.begin(), block.end(), 0.0);
    for (std::size_t i = 0; i < all.size(); ++i)
      block[i % block.size()] += std::bit_cast<double>(all[i]);
  }
}

}  // namespace

int Runtime::world_rank() const {
  return core_->world_rank();
}
int Runtime::world_size() const {
  return core_->world().topology().size;
}
void Runtime::cut_into_stages(int stages) {
  core_->cut_into_stages(stages);
}

double Runtime::sum(double value, Over over) {
  sum_over(ranks_of(*core_, over), std::span(&value, 1));
  return value;
}

void Runtime::sum(std::span<double> values) {
  sum_over(core_->ranks(), values);
}

int Runtime::gpu() const {
  return core_->device().gpu();
}

void Runtime::sum(std::span<float> values) {
  core_->ranks().exchange("Runtime::sum", [&](comm::Communicator& communicator) {
    communicator.all_reduce(values.data(), std::ssize(values), DType::fp32);
  });
}

void Runtime::sum(std::span<std::int64_t> values) {
  core_->ranks().exchange("Runtime::sum", [&](comm::Communicator& communicator) {
    communicator.all_reduce(values.data(), std::ssize(values), DType::int64);
  });
}

void Runtime::agree(std::string_view name, std::string_view value) {
  agree(Text{{std::string(name), std::string(value)}});
}

void Runtime::agree(std::string_view name, std::int64_t value) {
  agree(name, std::to_string(value));
}

void Runtime::agree(const Text& values) {
  detail::agree_on_values(core_->ranks(), values);
}

void Runtime::broadcast(std::span<std::byte> bytes, int root, Over over) {
  detail::Ranks& ranks = ranks_of(*core_, over);
  if (root < 0 || root >= ranks.topology().size)
    throw UsageError("Runtime::broadcast(): there is no rank " + std::to_string(root) + " among " +
                     std::to_string(ranks.topology().size));
  ranks.broadcast("Runtime::broadcast", bytes, root);
}

void Runtime::track(std::string_view what, std::int64_t bytes) {
  core_->ledger().track(std::string(what), bytes);
}

void Runtime::catch_signals(std::span<const int> numbers) {
  core_->catch_signals(numbers);
}

void Runtime::fail(const std::string& reason) {
  throw Error(reason);
}

bool Runtime::give_up(const std::string& reason, int exit_code) noexcept {
  const bool first = core_->publish_failure(reason, exit_code);
  mark_failure(core_->world().failed_rank(), exit_code);
  if (has_marks()) std::this_thread::sleep_for(unread_output);
  return first;
}

void Runtime::abort(int exit_code) noexcept {
  core_->world().abort(exit_code);
}

namespace {

// Errors before a Runtime exists often occur on all ranks, and rank 0 prints them. The remaining
// ranks wait first, because a launcher ends the whole job when the first rank exits. A rank that is
// still alive after the wait is alone with its failure, and prints it.
void report_early_failure(const std::string& reason, int exit_code, bool of_peer) {
  const int rank = comm::launched_rank();
  if (rank != 0) std::this_thread::sleep_for(std::chrono::seconds(3));
  if (rank != 0 && of_peer) return;
  print_last_words(rank, rank, exit_code, reason);
}

}  // namespace

bool launched_as_root() {
  return comm::launched_rank() == 0;
}

int run(int argc, char** argv, const std::function<void(Runtime&)>& body, RuntimeOptions options) {
  std::unique_ptr<Runtime> runtime;
  detail::Outcome failure;
  bool of_peer = false;
  try {
    runtime = std::make_unique<Runtime>(argc, argv, options);
    body(*runtime);
    return 0;
  } catch (const PeerFailed&) {
    failure = detail::current_failure();
    of_peer = true;
  } catch (...) {
    failure = detail::current_failure();
  }
  const auto& [code, reason] = failure;
  if (!runtime) {
    report_early_failure(reason, code, of_peer);
    return code;
  }
  // Only the first cause is printed; ranks that received it from another rank print nothing.
  if (runtime->core().publish_failure(reason, code))
    print_last_words(runtime->core().world_rank(), runtime->core().world().failed_rank(), code,
                     reason);
  std::fflush(nullptr);
  runtime->abort(code);
  return code;
}

}  // namespace zero
