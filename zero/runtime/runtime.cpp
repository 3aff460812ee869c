#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <thread>

#include "comm/environment.h"
#include "zero/base/last_words.h"
#include "zero/base/notice.h"
#include "zero/base/numa.h"
#include "zero/base/number_text.h"
#include "zero/base/process_name.h"
#include "zero/base/run_marks.h"
#include "zero/base/time_limit.h"
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

bool share_gpu_of(const RuntimeOptions& options) {
  const char* text = std::getenv("ZERO_SHARE_GPU");
  const std::string value = text != nullptr ? text : "";
  if (value.empty()) return options.share_gpu;
  if (value == "0" || value == "1") return value == "1";
  throw ConfigError("ZERO_SHARE_GPU is \"" + value + "\"; expected 0 or 1");
}

std::string executor_of(const RuntimeOptions& options) {
  const char* text = std::getenv("ZERO_EXECUTOR");
  const std::string value = text != nullptr && *text != '\0' ? text : options.executor;
  if (value == "auto" || value == "inline" || value == "worker") return value;
  throw ConfigError("ZERO_EXECUTOR (or RuntimeOptions) is \"" + value +
                    "\"; expected one of auto, inline, worker");
}

}  // namespace

namespace detail {

comm::WorldOptions world_options(const RuntimeOptions& options) {
  require_device(options);
  if (!(options.start_limit_seconds > 0))
    throw ConfigError("RuntimeOptions::start_limit_seconds is " +
                      shortest_text(options.start_limit_seconds) + "; it must be above 0");
  constexpr int most_threads = 1024;
  if (options.threads < 0 || options.threads > most_threads)
    throw ConfigError("RuntimeOptions::threads (train_gpt --threads) is " +
                      std::to_string(options.threads) + "; expected 0 to " +
                      std::to_string(most_threads) + " (0: the node's cores, shared)");
  comm::WorldOptions result;
  result.transport = options.transport;
  result.start_limit = time_limit_of(options.start_limit_seconds);
  result.abort_job = options.abort_job;
  result.share_gpu = share_gpu_of(options);
  result.rendezvous = options.rendezvous;
  return result;
}

RuntimeCore::RuntimeCore(std::unique_ptr<comm::World> world, RuntimeOptions options,
                         Accelerator accelerator)
    : world_(std::move(world)),
      options_(std::move(options)),
      accelerator_(accelerator.device ? std::move(accelerator)
                                      : create_accelerator(*world_, options_)),
      everyone_(*this),
      exceptions_at_start_(std::uncaught_exceptions()) {
  start_pool();
  start_streams();
  split_ranks();
}

// Ranks of a tensor group are neighbors, because tensor parallelism sends the most; stages of a
// pipeline, which send the least, are farthest apart.
void RuntimeCore::split_ranks() {
  const int ranks = world_->topology().size;
  const int tensor_ranks = options_.tensor_ranks, stages = options_.pipeline_stages;
  for (const auto& [name, size] :
       {std::pair("tensor_ranks", tensor_ranks), std::pair("pipeline_stages", stages)})
    if (size < 1 || ranks % size != 0)
      throw TopologyError("RuntimeOptions::" + std::string(name) + " is " + std::to_string(size) +
                          ", which does not divide " + std::to_string(ranks) + " ranks");
  if (ranks % (tensor_ranks * stages) != 0)
    throw TopologyError("RuntimeOptions::tensor_ranks x pipeline_stages is " +
                        std::to_string(tensor_ranks * stages) + ", which does not divide " +
                        std::to_string(ranks) + " ranks");
  if (tensor_ranks * stages == 1) return;
  const int data_ranks = ranks / (tensor_ranks * stages);
  const int tensor_rank = world_rank() % tensor_ranks;
  const int data_rank = world_rank() / tensor_ranks % data_ranks;
  const int stage = world_rank() / (tensor_ranks * data_ranks);
  data_ = everyone_.split("the start of data ranks", stage * tensor_ranks + tensor_rank, data_rank);
  data_->place_on_nodes("data rank");
  if (tensor_ranks > 1) {
    tensor_ =
        everyone_.split("the start of tensor groups", stage * data_ranks + data_rank, tensor_rank);
    tensor_->place_on_nodes("tensor rank");
  }
  if (stages > 1) {
    pipe_ =
        everyone_.split("the start of pipelines", data_rank * tensor_ranks + tensor_rank, stage);
    pipe_->place_on_nodes("stage");
  }
}

void copy_and_wait(RuntimeCore& runtime, void* to, const void* from, std::int64_t bytes) {
  if (runtime.device().is_host()) return runtime.device().copy(to, from, bytes, {});
  // A copy of memory that is not page-locked blocks inside CUDA, without a limit, until the stream
  // has come to the copy: wait first, with a limit, for the work queued before.
  runtime.compute().synchronize();
  runtime.compute().enqueue([&](Stream stream) { runtime.device().copy(to, from, bytes, stream); });
  runtime.compute().synchronize();
}

void queue_zeros(RuntimeCore& runtime, void* data, std::int64_t bytes) {
  if (bytes > 0)
    runtime.compute().enqueue([&device = runtime.device(), data, bytes](Stream stream) {
      device.fill_zero(data, bytes, stream);
    });
}

// Ranks of other groups of a hosted program use the same cores.
int RuntimeCore::share_of_cores() const {
  return default_compute_threads(
      std::max(world_->topology().local_size, comm::launched_neighbors()));
}

// On GPU ranks the pool serves state offloaded to host memory.
void RuntimeCore::start_pool() {
  const int fair_share = share_of_cores();
  pool_ = std::make_unique<ThreadPool>(options_.threads > 0 ? options_.threads : fair_share);
  host_kernels_ = optim::create_host_kernels(*pool_);
  const int node = device().numa_node();
  if (!device().is_host() && node >= 0 && runs_beyond_numa_node(node))
    warn_once(
        "rank " + std::to_string(world_rank()) + " may run on cpus of other NUMA nodes than " +
        std::to_string(node) +
        ", that of its GPU, where updates of state in host memory are slower: let the launcher "
        "bind it (mpirun --map-by numa --bind-to numa, srun --cpu-bind)");
}

void RuntimeCore::start_streams() {
  if (!device().is_host())
    device().waits().describe(world_rank(), [this] { check_communicator(); });
  compute_ = options_.stream.handle != nullptr ? device().borrow_stream(options_.stream)
                                               : device().create_stream(Device::Role::compute);

  const std::string executor = executor_of(options_);
  const bool any_thread = world_->communicates_from_any_thread();
  const bool core_to_spare = pool_->threads() < share_of_cores();
  const bool worker = device().is_host() && any_thread &&
                      (executor == "worker" ||
                       (executor == "auto" && core_to_spare && world_->topology().size > 1));
  communication_ = worker ? create_worker_stream("zero-comm")
                          : device().create_stream(Device::Role::communication);
  all_inline_ = executor == "inline";
  written_ = compute_->create_event();
  exchanged_ = communication_->create_event();

  if (options_.catch_signals) {
    ignore_system_signals();
    catch_signals(std::array{SIGTERM, SIGINT, SIGUSR2});
  }
}

void RuntimeCore::catch_signals(std::span<const int> numbers) {
  request_stop_on(numbers);
  catches_signals_ = true;
  if (options_.abort_job && std::ranges::find(numbers, SIGUSR2) != numbers.end())
    mark("stoppable", world_rank(), process_name());
}

RuntimeCore::~RuntimeCore() {
  // zero::run() reports the cause to the peers; in other programs only this message is left.
  if (std::uncaught_exceptions() > exceptions_at_start_)
    publish_failure("an exception ended its Runtime; its own program has the reason", Error::code);
  pipe_.reset();
  tensor_.reset();
  data_.reset();
  communication_.reset();
  compute_.reset();
  accelerator_.communicator.reset();
  world_.reset();
}

std::string RuntimeCore::describe() {
  const std::string where = device().is_host() ? "" : device().describe() + ", ";
  return where + world_->describe() + ", " + communication_->kind() + " communication" + ", " +
         std::to_string(pool_->threads()) + " compute thread" + (pool_->threads() == 1 ? "" : "s") +
         " per rank";
}

bool RuntimeCore::publish_failure(const std::string& reason, int exit_code) noexcept {
  failed_first_ = world_->fail(reason, exit_code) || failed_first_;
  return failed_first_;
}

bool RuntimeCore::stop_requested() const {
  return catches_signals_ && detail::stop_requested();
}

}  // namespace detail

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

double Runtime::sum(double value) {
  sum(std::span(&value, 1));
  return value;
}

// In blocks, because every rank's values are in memory at once.
void Runtime::sum(std::span<double> values) {
  constexpr std::size_t most = 1 << 16;
  for (; !values.empty(); values = values.subspan(std::min(most, values.size()))) {
    const std::span<double> block = values.first(std::min(most, values.size()));
    std::vector<std::int64_t> words;
    for (const double value : block) words.push_back(std::bit_cast<std::int64_t>(value));
    const std::vector<std::int64_t> all = core_->ranks().gather_words("Runtime::sum", words);
    std::fill(block.begin(), block.end(), 0.0);
    for (std::size_t i = 0; i < all.size(); ++i)
      block[i % block.size()] += std::bit_cast<double>(all[i]);
  }
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

void Runtime::broadcast(std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= size())
    throw UsageError("Runtime::broadcast(): there is no rank " + std::to_string(root) + " among " +
                     std::to_string(size()));
  core_->ranks().broadcast("Runtime::broadcast", bytes, root);
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
