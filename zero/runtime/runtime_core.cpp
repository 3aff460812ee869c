#include "zero/runtime/runtime_core.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <utility>

#include "comm/environment.h"
#include "zero/base/notice.h"
#include "zero/base/numa.h"
#include "zero/base/number_text.h"
#include "zero/base/process_name.h"
#include "zero/base/run_marks.h"
#include "zero/base/time_limit.h"
#include "zero/runtime/fingerprint.h"
#include "zero/runtime/stop_signals.h"

namespace zero::detail {

namespace {

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
       {std::pair("RuntimeOptions::tensor_ranks", tensor_ranks),
        std::pair("pipeline.stages (RuntimeOptions::pipeline_stages)", stages)})
    if (size < 1 || ranks % size != 0)
      throw TopologyError(std::string(name) + " is " + std::to_string(size) +
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

void RuntimeCore::cut_into_stages(int stages) {
  if (engines > 0)
    throw UsageError("Runtime::cut_into_stages() was called while " + std::to_string(engines) +
                     " engines exist, whose ranks it would change: destroy them before");
  agree_on_values(everyone_, {{"the number of pipeline stages", std::to_string(stages)}});
  if (stages == options_.pipeline_stages) return;
  const int before = std::exchange(options_.pipeline_stages, stages);
  try {
    pipe_.reset();
    tensor_.reset();
    data_.reset();
    split_ranks();
  } catch (const TopologyError&) {
    options_.pipeline_stages = before;
    split_ranks();
    throw;
  }
  start_communication();
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

  all_inline_ = executor_of(options_) == "inline";
  written_ = compute_->create_event();
  start_communication();

  if (options_.catch_signals) {
    ignore_system_signals();
    catch_signals(std::array{SIGTERM, SIGINT, SIGUSR2});
  }
}

// A stage of a pipeline waits for its neighbors most of all: without a thread that does so, its own
// scopes wait too.
void RuntimeCore::start_communication() {
  const std::string executor = executor_of(options_);
  const bool any_thread = world_->communicates_from_any_thread();
  const bool gains = pool_->threads() < share_of_cores() || options_.pipeline_stages > 1;
  const bool worker =
      device().is_host() && any_thread &&
      (executor == "worker" || (executor == "auto" && gains && world_->topology().size > 1));
  exchanged_.reset();  // before its stream
  communication_ = worker ? create_worker_stream("zero-comm")
                          : device().create_stream(Device::Role::communication);
  exchanged_ = communication_->create_event();
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

}  // namespace zero::detail
