// The ranks of a job from the view of a program: device, transport, sums over ranks, and job
// shutdown. Part of zero/zero.h, whose rules on threads and collective calls also apply here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "zero/base/error.h"
#include "zero/base/stream.h"
#include "zero/config.h"

namespace zero {

class Rendezvous;  // <zero/rendezvous.h>
class ThreadPool;  // zero/base/cpu/thread_pool.h

namespace detail {
class RuntimeCore;
}  // namespace detail

struct RuntimeOptions {
  // cpu, or cuda: the memory of parameters and gradients, and hence the target of the program's
  // kernels. auto is cpu.
  std::string device = "auto";
  Stream stream = {};      // the program's own compute stream on that device, if any
  bool share_gpu = false;  // several ranks may use a GPU: for tests, slowly; ZERO_SHARE_GPU wins
  bool abort_job = true;   // false in a hosted program: the library never aborts or exits
  // SIGTERM, SIGINT and SIGUSR2 request a stop (StepResult::stop_requested); a second SIGTERM or
  // SIGINT ends the process. SIGXFSZ and SIGPIPE are ignored unless the program has a handler, so
  // that the failing call returns an error with the cause.
  bool catch_signals = true;
  std::string transport = "auto";  // auto, self, shm, mpi, gloo, hierarchical; ZERO_TRANSPORT wins
  // How the ranks find each other without an MPI launcher; null: MPI, or one rank. With a
  // rendezvous, MPI is left alone.
  std::shared_ptr<Rendezvous> rendezvous = {};
  // The thread that communicates on CPU ranks: inline (the caller's), worker (a separate thread),
  // auto (worker if a core is left, or with stages of a pipeline). The environment's ZERO_EXECUTOR
  // overrides this.
  std::string executor = "auto";
  // Tensor parallelism, as in Megatron-LM: this many consecutive ranks hold parts of the same
  // model. Each declares a part of each split parameter (ParamOptions::split) and the whole of the
  // rest. rank() and size() are then those of data parallelism. Gradient norm, clipping, the
  // decision to skip a step, the loss scale, stop requests and checkpoints span all ranks;
  // gradients are summed, and losses averaged, over the ranks of equal tensor_rank(). A divisor of
  // the number of ranks.
  int tensor_ranks = 1;
  // Pipeline parallelism: the ranks are cut into this many blocks of neighbors, the stages, and
  // each stage has consecutive units of the model (pipeline.partition), of which all
  // ranks declare all. The engine sends activations and gradients between stages, see
  // Engine::tasks(). rank() and size() are then those of the data ranks of a stage. Norm, clipping,
  // decisions, losses, digests and checkpoints span all ranks, with the bits of one stage. A
  // divisor of the number of ranks.
  int pipeline_stages = 1;
  int threads = 0;  // compute threads of this rank; 0: the node's cores, shared by the ranks there
  double start_limit_seconds = 120;  // until all ranks have started; ZERO_START_LIMIT overrides it
};

// The ranks that an exchange is over: with tensor parallelism and pipelines there are two kinds.
enum class Over : std::uint8_t { data_ranks, all_ranks };

// The ranks, with device and transport. Must outlive all engines. <zero/mpi.h> adopts a program's
// own communicators.
class Runtime {
 public:
  // Calls MPI_Init unless MPI is already up or there is a rendezvous; finalizes only after such a
  // call.
  Runtime(int& argc, char**& argv, RuntimeOptions = {});
  explicit Runtime(std::unique_ptr<detail::RuntimeCore> core);
  // A single rank, no MPI. <zero/testing.h> runs N ranks as threads of a process.
  static Runtime single(RuntimeOptions = {});
  Runtime(Runtime&&) noexcept;
  ~Runtime();

  // Local:
  int rank() const;  // among the data ranks: all, without tensor parallelism and pipelines
  int size() const;
  int local_rank() const;  // among all ranks of this node
  int local_size() const;
  int tensor_rank() const;  // see RuntimeOptions::tensor_ranks
  int tensor_size() const;
  int pipeline_stage() const;  // see RuntimeOptions::pipeline_stages
  int pipeline_stages() const;
  int world_rank() const;  // among all ranks
  int world_size() const;
  bool is_root() const;
  int threads() const;
  // The compute threads, for the program's own kernels between engine calls.
  ThreadPool& pool();
  Stream stream() const;
  int gpu() const;  // CUDA's number of this rank's device in this process; -1 on the CPU
  // "shm over 4 ranks on 1 node, ...": transport, executor and threads as chosen at start.
  std::string describe() const;

  // Sums host values over ranks, in rank order: bitwise identical on all ranks. This and the
  // following calls wait for up to 600 s, or once an engine exists, up to
  // zero_core.time_limit_seconds.
  double sum(double value, Over over = Over::data_ranks);
  void sum(std::span<double> values);
  void sum(std::span<float> values);
  void sum(std::span<std::int64_t> values);
  // Throws DisagreementError on every rank, with names, ranks and values, if ranks have different
  // values under these names: for options and inputs that must be equal.
  void agree(std::string_view name, std::string_view value);
  void agree(std::string_view name, std::int64_t value);
  void agree(const Text& values);
  // Sends the root's bytes, in host memory, to every rank.
  void broadcast(std::span<std::byte> bytes, int root = 0, Over over = Over::data_ranks);
  // Cuts the ranks as RuntimeOptions::pipeline_stages does, for a program that knows the number
  // later. Collective over all ranks; throws UsageError while an engine exists.
  void cut_into_stages(int stages);
  // Local. Adds the program's own memory (activations, say) to the ledger and the plan; a second
  // call with the same name replaces the figure.
  void track(std::string_view what, std::int64_t bytes);
  // Local. From here on these signals request a stop, as with RuntimeOptions::catch_signals: for a
  // program that handles some signals itself, or wants no handlers before training.
  void catch_signals(std::span<const int> numbers);
  // Local. This rank gives up; the peers throw PeerFailed with the reason.
  [[noreturn]] void fail(const std::string& reason);
  // Local, for programs that catch a Runtime's errors and end by themselves. give_up() sends the
  // reason to the peers, which throw PeerFailed; returns true on the single rank of a node that
  // should print the reason. abort() then ends the process as run() does: with the first cause's
  // code, once the peers have noticed, a second later at most. Without options.abort_job abort()
  // returns.
  bool give_up(const std::string& reason, int exit_code) noexcept;
  void abort(int exit_code) noexcept;

  detail::RuntimeCore& core() { return *core_; }

 private:
  std::unique_ptr<detail::RuntimeCore> core_;
};

// Runs the body with a Runtime; catches any exception, notifies the peers, prints the first cause
// once and returns that cause's exit code.
int run(int argc, char** argv, const std::function<void(Runtime&)>& body, RuntimeOptions = {});

// Local, before a Runtime exists: returns whether the launcher's environment makes this process
// rank 0 (true without a launcher). For reporting an invalid command line on one rank only.
bool launched_as_root();

}  // namespace zero
