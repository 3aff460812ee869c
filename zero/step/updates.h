// The updates of a step on this rank's elements, by the rules of optimizer groups: for state on the
// device, as kernels in the order of the compute stream, without effect unless the decision is
// "apply"; on GPU ranks also for chunks with state in host memory. Most rules see single elements.
// For rules that need tensor norms, all ranks add up order-independent sums once a step, and before
// these, if second moments are factored (Adafactor), sums of rows and columns, segment by segment;
// whole matrices (Muon) are sent to an owner and back, also segment by segment. Results do not
// depend on the sharding of the state. One thread, except for update_on_host().
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "optim/device_kernels.h"
#include "zero/pass/transfers.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/change_bits.h"
#include "zero/state/memory_requests.h"
#include "zero/state/state_store.h"
#include "zero/step/factored_matrices.h"
#include "zero/step/step_agreement.h"

namespace zero::detail {

class Updates {
 public:
  // All must outlive the updates.
  struct Parts {
    RuntimeCore& runtime;
    Ranks* tensor;        // see TrainState::tensor()
    Ranks& update_group;  // the ranks that share the update: all, or this rank's shard group
    const EnginePlan& plan;
    const ModelState& state;
    const Buffers& buffers;
    const StepScalars& scalars;
    const StepAgreement& agreement;
    const ChangeBits& changes;
  };
  explicit Updates(const Parts& parts);

  // Adds the bytes to the ledger's plan; allocate() then takes the memory.
  void plan(Ledger& ledger) const { requests_.plan(ledger); }
  void allocate(Ledger& ledger) {
    arena_ = parts_.runtime.device().reserve(requests_.bytes(), Arena::Sharing::private_memory,
                                             "ranges of updates");
    requests_.take(arena_, ledger);
    if (!ranges_.empty())
      copy_and_wait(parts_.runtime, device_ranges_, ranges_.data(),
                    std::ssize(ranges_) * sizeof(optim::GroupRange));
  }

  // Call before the first step, once the state has memory: fills the state, and finds the arrays of
  // all updates, whose addresses never change.
  void prepare(StateStore& store);

  // The first half of rules that need tensor norms, for all chunks; with the latest agreement.
  void measure();
  // The transfers send the matrices.
  void update(int chunk, Transfers& transfers);
  // Updates a chunk that passes through a slot of the GPU, on that stream.
  void update_streamed(int chunk, ExecutionStream& stream) { queue_launches(chunk, stream); }
  // Updates a chunk in host memory on a GPU rank, with a decision that the host has read; any
  // thread.
  void update_on_host(int chunk, const StepFactors& factors,
                      const optim::StepDecision& decision) const;

 private:
  // Elements of a chunk with the same update rule: updated by one launch.
  struct Launch {
    optim::RuleKind rule{};
    int group = 0;  // the first of several with the same states
    Range range;
    int first_range = 0;  // in ranges_
    int range_count = 0;
    optim::DeviceUpdate update = {};  // with ranges in device memory, without factors
  };
  // This rank's elements of a matrix, and the place of the direction among those sent.
  struct Direction {
    const PlannedMatrix* matrix = nullptr;
    std::int64_t begin = 0;      // of these elements in the segment
    optim::DeviceUpdate update;  // without factors
    float* values = nullptr;
  };
  void list_launches(const Chunk& chunk, std::vector<Launch>& launches);
  void add_ranges(const Launch& launch, const Segment& segment, const GroupRange& run);
  void fill_initial_states(StateStore& store) const;
  std::vector<Direction> directions_of(const StateStore& store, int chunk,
                                       const MatrixBatch& batch) const;
  optim::DeviceUpdate update_of(const StateStore& store, int chunk, const Range& range,
                                int group) const;
  // Adds the factors of the latest agreement.
  optim::DeviceUpdate with_factors(optim::DeviceUpdate update) const {
    update.factors = parts_.agreement.factors();
    return update;
  }
  // Adds the place where the update of elements of a chunk from `begin` on notes changes.
  optim::DeviceUpdate noting(optim::DeviceUpdate update, int chunk, std::int64_t begin,
                             bool on_host = false) const {
    update.changed = parts_.changes.bits(parts_.plan.inputs.chunks[chunk], begin, on_host);
    return update;
  }
  optim::TensorSums* tensor_sums() const {
    return reinterpret_cast<optim::TensorSums*>(parts_.state.tensor_norms());
  }
  // Queues work(kernels, rule, update, stream) for each launch of a rule that sees tensor norms.
  template <class Work>
  void queue_measured(const Work& work);
  void leave_uncounted_sums();
  void add_up(Ranks& ranks, std::string_view subject, void* sums, std::int64_t words);
  void write_tensors();
  // Updates the moments of all factored matrices, segment by segment.
  void update_moments();
  void update_moments(const SegmentId& id, const std::vector<FactoredMatrices::Member>& matrices);
  void queue_launches(int chunk, ExecutionStream& stream);
  void update_matrices(int chunk, Transfers& transfers);
  void orthogonalize(const PlannedMatrix& matrix, float* values);
  // Queues work(kernels, stream), on the compute stream if no other is given.
  template <class Work>
  void queue(Work work) {
    queue(parts_.runtime.compute(), std::move(work));
  }
  template <class Work>
  void queue(ExecutionStream& on, Work work) {
    on.enqueue([&kernels = parts_.runtime.kernels(), work = std::move(work)](Stream stream) {
      work(kernels, stream);
    });
  }

  const Parts parts_;
  std::vector<std::vector<Launch>> launches_;                    // per chunk
  std::vector<std::vector<std::vector<Direction>>> directions_;  // per chunk and batch
  // Ranges of a group or a tensor: those of all launches, launch by launch; each counts from the
  // first element of the launch.
  std::vector<optim::GroupRange> ranges_;
  MemoryRequests requests_;
  Arena arena_;
  optim::NormSum* matrix_norm_ = nullptr;  // matrix by matrix
  optim::GroupRange* device_ranges_ = nullptr;
  float* steps_ = nullptr;  // per range
  // If there is a group of Adafactor, also per range.
  std::vector<optim::TensorRange> tensors_;
  optim::TensorRange* device_tensors_ = nullptr;
  float* decays_ = nullptr;
  FactoredMatrices factored_;
};

}  // namespace zero::detail
