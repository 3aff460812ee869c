// Ranks that record the calls to them, and compute nothing. Each runs on its own thread. A
// collective returns every rank's own data, as if its peers had sent the same, so that no rank
// waits; ranks meet only to split a group and to broadcast.
#pragma once

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/wire/device_codec.h"
#include "comm/world.h"
#include "optim/device_kernels.h"
#include "tests/support/host_kernels.h"
#include "tests/support/mock_device.h"
#include "zero/base/device.h"
#include "zero/base/error.h"

namespace recording {

// One rank's record: a hash of its lines, and the lines themselves if they are requested.
class Trace {
 public:
  explicit Trace(bool keeps_lines = false) : keeps_lines_(keeps_lines) {}

  // Adds a line of these parts, separated by spaces.
  template <class... Parts>
  void line(const Parts&... parts) {
    std::string text;
    ((text += as_text(parts), text += ' '), ...);
    for (const char c : text) add(static_cast<unsigned char>(c));
    add('\n');
    if (keeps_lines_) lines_ += text + "\n";
  }
  std::uint64_t hash() const { return hash_; }
  const std::string& lines() const { return lines_; }
  std::string refusal;  // the text of the error that ended it; not part of the hash

  void add_arena(const void* data, std::int64_t bytes, const std::string& name) {
    arenas_.push_back({static_cast<const std::byte*>(data), bytes, name});
  }
  // Returns "arena+offset" of an address in an arena. Other addresses, such as words of the control
  // traffic, have no name.
  std::string place_of(const void* address) const {
    if (address == nullptr) return "null";
    const auto* at = static_cast<const std::byte*>(address);
    for (auto arena = arenas_.rbegin(); arena != arenas_.rend(); ++arena)
      if (at >= arena->data && at < arena->data + arena->bytes)
        return arena->name + "+" + std::to_string(at - arena->data);
    return "outside";
  }

 private:
  struct Area {
    const std::byte* data;
    std::int64_t bytes;
    std::string name;
  };
  static std::string as_text(const std::string& text) { return text; }
  static std::string as_text(std::string_view text) { return std::string(text); }
  static std::string as_text(const char* text) { return text; }
  static std::string as_text(float value) { return std::to_string(value); }
  static std::string as_text(zero::DType dtype) { return zero::name_of(dtype); }
  template <class T>
  static std::string as_text(T value) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  void add(unsigned char c) { hash_ = (hash_ ^ c) * 0x100000001b3u; }

  bool keeps_lines_;
  std::uint64_t hash_ = 0xcbf29ce484222325u;
  std::string lines_;
  std::vector<Area> arenas_;
};

// The meeting point of one group's ranks. If a rank fails, it abandons all meetings of its job.
struct Job {
  std::mutex mutex;
  std::condition_variable changed;
  bool abandoned = false;

  void abandon() {
    const std::lock_guard lock(mutex);
    abandoned = true;
    changed.notify_all();
  }
};

class Meeting {
 public:
  Meeting(std::shared_ptr<Job> job, int ranks) : job_(std::move(job)), given_(std::size_t(ranks)) {}

  // Returns the words that each rank passed to this call.
  std::vector<std::vector<std::int64_t>> exchange(int rank, std::vector<std::int64_t> words) {
    std::unique_lock lock(job_->mutex);
    const std::int64_t round = round_;
    given_[std::size_t(rank)] = std::move(words);
    if (++arrived_ == static_cast<int>(given_.size())) {
      arrived_ = 0;
      ++round_;
      result_ = given_;
      job_->changed.notify_all();
    }
    job_->changed.wait(lock, [&] { return round_ != round || job_->abandoned; });
    if (round_ == round) throw zero::PeerFailed("another rank has failed");
    return result_;
  }
  // Returns the meeting of the part with this color in the current round; the same object for all
  // of its ranks.
  std::shared_ptr<Meeting> part(int color, int ranks) {
    const std::lock_guard lock(job_->mutex);
    std::shared_ptr<Meeting>& found = parts_[{round_, color}];
    if (!found) found = std::make_shared<Meeting>(job_, ranks);
    return found;
  }

 private:
  std::shared_ptr<Job> job_;
  std::vector<std::vector<std::int64_t>> given_, result_;
  std::map<std::pair<std::int64_t, int>, std::shared_ptr<Meeting>> parts_;
  std::int64_t round_ = 0;
  int arrived_ = 0;
};

class Communicator final : public zero::comm::Communicator {
 public:
  Communicator(zero::comm::Group group, std::shared_ptr<Meeting> meeting, Trace& trace,
               const char* kind)
      : zero::comm::Communicator(group.rank, group.size()),
        group_(std::move(group)),
        meeting_(std::move(meeting)),
        trace_(trace),
        kind_(kind) {
    for (const int rank : group_.world_ranks) members_ += "," + std::to_string(rank);
  }

  std::string_view transport() const override { return kind_; }
  std::unique_ptr<zero::comm::Communicator> split(int color, int key) override {
    trace_.line(kind_, "split", members_, color, key);
    const auto given = meeting_->exchange(rank(), {color, key});
    std::vector<std::int64_t> words;
    for (const auto& own : given) words.insert(words.end(), own.begin(), own.end());
    zero::comm::Subgroup part = zero::comm::subgroup_of(group_, words);
    auto meeting = meeting_->part(color, part.group.size());
    return std::make_unique<Communicator>(std::move(part.group), std::move(meeting), trace_, kind_);
  }
  void share(const zero::Arena& arena) override { trace_.line(kind_, "share", arena.size()); }
  std::int64_t staging_bytes(std::int64_t count, zero::DType dtype) const override {
    return kind_ == std::string_view("device") && terms().deterministic
               ? size() * count * zero::size_of(dtype)
               : 0;
  }
  void use_staging(void* data, std::int64_t bytes) override {
    trace_.line("staging", trace_.place_of(data), bytes);
  }

 protected:
  void do_all_gather(const void* send, void* recv, std::int64_t count, zero::DType dtype,
                     std::int64_t stride) override {
    record("all_gather", send, recv, count, dtype, stride);
    const std::int64_t width = zero::size_of(dtype);
    for (int r = 0; r < size(); ++r)
      std::memmove(static_cast<std::byte*>(recv) + r * stride * width, send,
                   std::size_t(count * width));
  }
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, zero::DType dtype,
                         std::int64_t stride) override {
    record("reduce_scatter", send, recv, count, dtype, stride);
    const std::int64_t width = zero::size_of(dtype);
    std::memmove(recv, static_cast<const std::byte*>(send) + rank() * stride * width,
                 std::size_t(count * width));
  }
  void do_all_reduce(void* data, std::int64_t count, zero::DType dtype) override {
    record("all_reduce", data, data, count, dtype, 0);
    if (dtype != zero::DType::int64) return;
    for (std::int64_t i = 0; i < count; ++i) static_cast<std::int64_t*>(data)[i] *= size();
  }
  void do_broadcast(void* data, std::int64_t count, zero::DType dtype, int root) override {
    record("broadcast", data, data, count, dtype, root);
    const auto bytes = std::size_t(count * zero::size_of(dtype));
    std::vector<std::int64_t> words((bytes + 7) / 8);
    std::memcpy(words.data(), data, bytes);
    const auto given = meeting_->exchange(rank(), std::move(words));
    std::memcpy(data, given[std::size_t(root)].data(), bytes);
  }
  void do_all_to_all(const void* send, void* recv, const zero::comm::PairCounts& counts,
                     zero::DType dtype) override {
    std::string sizes;
    for (int r = 0; r < size(); ++r)
      sizes += "," + std::to_string(counts(rank(), r)) + ":" + std::to_string(counts(r, rank()));
    record("all_to_all " + sizes, send, recv, 0, dtype, 0);
  }
  void do_barrier() override { trace_.line(kind_, "barrier", members_); }

 private:
  void record(const std::string& operation, const void* send, const void* recv, std::int64_t count,
              zero::DType dtype, std::int64_t stride) {
    std::string groups;
    for (const int ranks : terms().reduce_groups.sizes) groups += "," + std::to_string(ranks);
    trace_.line(kind_, operation, members_, trace_.place_of(send), trace_.place_of(recv), count,
                dtype, stride, groups);
  }

  zero::comm::Group group_;
  std::shared_ptr<Meeting> meeting_;
  Trace& trace_;
  const char* kind_;
  std::string members_;
};

class World final : public zero::comm::World {
 public:
  World(zero::comm::Topology topology, std::shared_ptr<Job> job, std::shared_ptr<Meeting> meeting,
        Trace& trace)
      : topology_(std::move(topology)),
        job_(std::move(job)),
        communicator_(all_ranks(topology_), std::move(meeting), trace, "host") {}

  static zero::comm::Group all_ranks(const zero::comm::Topology& topology) {
    zero::comm::Group group;
    for (int r = 0; r < topology.size; ++r) group.world_ranks.push_back(r);
    group.rank = topology.rank;
    return group;
  }
  const zero::comm::Topology& topology() const override { return topology_; }
  zero::comm::Communicator& communicator() override { return communicator_; }
  bool communicates_from_any_thread() const override { return true; }
  std::string describe() const override { return "recorded ranks"; }
  bool fail(const std::string&, int) noexcept override {
    job_->abandon();
    return topology_.rank == 0;
  }
  bool failed() const noexcept override { return job_->abandoned; }
  void abort(int) noexcept override {}

 private:
  zero::comm::Topology topology_;
  std::shared_ptr<Job> job_;
  Communicator communicator_;
};

// A device that passes everything on and records memory, copies and fills.
class Device final : public zero::Device {
 public:
  Device(zero::Device& device, Trace& trace) : device_(device), trace_(trace) {}

  const char* kind() const override { return device_.kind(); }
  bool is_host() const override { return device_.is_host(); }
  std::unique_ptr<zero::ExecutionStream> create_stream(Role role) override {
    return device_.create_stream(role);
  }
  std::unique_ptr<zero::ExecutionStream> create_worker(const std::string& name) override {
    return device_.create_worker(name);
  }
  std::unique_ptr<zero::ExecutionStream> borrow_stream(zero::Stream stream) override {
    return device_.borrow_stream(stream);
  }
  zero::Arena reserve(std::int64_t bytes, zero::Arena::Sharing, const std::string& name) override {
    return named(name, device_.reserve(bytes, zero::Arena::Sharing::private_memory, name));
  }
  zero::Arena reserve_pinned(std::int64_t bytes, const std::string& name) override {
    return named(name, device_.reserve_pinned(bytes, name));
  }
  void copy(void* to, const void* from, std::int64_t bytes, zero::Stream) override {
    trace_.line("copy", trace_.place_of(to), trace_.place_of(from), bytes);
  }
  void fill_zero(void* to, std::int64_t bytes, zero::Stream stream) override {
    trace_.line("zero", trace_.place_of(to), bytes);
    device_.fill_zero(to, bytes, stream);
  }
  void call(std::function<void()> work, zero::Stream stream) override {
    device_.call(std::move(work), stream);
  }

 private:
  zero::Arena named(const std::string& name, zero::Arena arena) {
    trace_.line("reserve", name, arena.size());
    trace_.add_arena(arena.data(), arena.size(), name);
    return arena;
  }

  zero::Device& device_;
  Trace& trace_;
};

// Kernels that record their arguments. Only votes and decisions are computed.
class Kernels final : public zero::optim::DeviceKernels {
 public:
  explicit Kernels(Trace& trace) : trace_(trace), host_(zero::optim::create_host_kernels()) {}

  void cast(const void* from, zero::DType from_dtype, void* to, zero::DType to_dtype,
            std::int64_t count, zero::Stream) override {
    trace_.line("cast", at(from), from_dtype, at(to), to_dtype, count);
  }
  void accumulate(void* sum, zero::DType dtype, const void* addend, zero::DType addend_dtype,
                  std::int64_t count, zero::Stream) override {
    trace_.line("accumulate", at(sum), dtype, at(addend), addend_dtype, count);
  }
  void divide(void* gradient, zero::DType dtype, std::int64_t count, float divisor,
              zero::Stream) override {
    trace_.line("divide", at(gradient), dtype, count, divisor);
  }
  void add_loss(const float*, double*, zero::Stream) override {}
  void add_losses(const double* losses, double* sums, std::int64_t count,
                  zero::Stream stream) override {
    host_->add_losses(losses, sums, count, stream);
  }
  void add_norm(const void* gradient, zero::DType dtype, std::int64_t count, zero::optim::NormSum*,
                zero::Stream) override {
    trace_.line("norm", at(gradient), dtype, count);
  }
  void complete(const zero::optim::StepRequest* request, const double* loss_sum,
                zero::optim::StepVote* vote, zero::Stream stream) override {
    host_->complete(request, loss_sum, vote, stream);
  }
  void decide(const zero::optim::StepVote* votes, int ranks,
              const zero::optim::StepRequest* request, zero::optim::StepDecision* decision,
              const double* losses, zero::Stream stream) override {
    host_->decide(votes, ranks, request, decision, losses, stream);
  }
  void add_factor_sums(const zero::optim::DeviceUpdate& update, const zero::optim::StepDecision*,
                       zero::Stream) override {
    record("add_factor_sums", zero::optim::RuleKind{}, update);
  }
  void take_factors(const zero::optim::DeviceUpdate&, const zero::optim::FactoredMatrix& matrix,
                    const zero::optim::StepDecision*, zero::Stream) override {
    trace_.line("take_factors", at(matrix.row_var), at(matrix.col_var), matrix.elements());
  }
  void measure(zero::optim::RuleKind rule, const zero::optim::DeviceUpdate& update,
               zero::optim::TensorSums*, const zero::optim::StepDecision*, zero::Stream) override {
    record("measure", rule, update);
  }
  void take_steps(const zero::optim::DeviceUpdate& update, const zero::optim::TensorSums*,
                  const zero::optim::StepDecision*, zero::Stream) override {
    record("take_steps", zero::optim::RuleKind{}, update);
  }
  void direct(const zero::optim::DeviceUpdate& update, float* directions,
              const zero::optim::StepDecision*, zero::Stream) override {
    record("direct " + at(directions), zero::optim::RuleKind{}, update);
  }
  void step_along(const zero::optim::DeviceUpdate& update, double, const zero::optim::StepDecision*,
                  zero::Stream) override {
    record("step_along", zero::optim::RuleKind{}, update);
  }
  void product(const zero::optim::Product&, std::int64_t rows, zero::Stream) override {
    trace_.line("product", rows);
  }
  void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to,
                 zero::Stream) override {
    trace_.line("transpose", at(from), rows, cols, at(to));
  }
  void add_to_diagonal(float* matrix, std::int64_t edge, float, zero::Stream) override {
    trace_.line("add_to_diagonal", at(matrix), edge);
  }
  void normalize(zero::optim::RuleKind, float* values, std::int64_t count, zero::optim::NormSum*,
                 zero::Stream) override {
    trace_.line("normalise", at(values), count);
  }
  void update(zero::optim::RuleKind rule, const zero::optim::DeviceUpdate& update,
              const zero::optim::StepDecision*, zero::Stream) override {
    record("update", rule, update);
  }

 private:
  std::string at(const void* address) const { return trace_.place_of(address); }
  void record(const std::string& what, zero::optim::RuleKind rule,
              const zero::optim::DeviceUpdate& u) {
    std::string states;
    for (const void* state : u.states) states += "," + at(state);
    trace_.line(what, rule, u.count, at(u.gradient), u.gradient_dtype, at(u.master), u.master_dtype,
                states, u.state_dtype, at(u.parameter), u.parameter_dtype, u.range_count, u.groups);
  }

  Trace& trace_;
  std::unique_ptr<zero::optim::DeviceKernels> host_;
};

// The trace of the rank on this thread. Thread-local, since a codec is a table of plain functions.
inline thread_local Trace* of_this_rank = nullptr;

inline const zero::comm::wire::DeviceCodec codec = {
    [](const zero::comm::wire::Codec& codec, const zero::comm::wire::Elements& from, void* encoded,
       zero::Stream) {
      Trace& trace = *of_this_rank;
      trace.line("encode", zero::comm::wire::name_of(codec.format), codec.block,
                 trace.place_of(from.data), from.dtype, from.count, trace.place_of(encoded),
                 from.errors.sums != nullptr);
    },
    [](const zero::comm::wire::Codec& codec, const void* encoded, std::int64_t count, void* to,
       zero::DType dtype, zero::Stream) {
      Trace& trace = *of_this_rank;
      trace.line("decode", zero::comm::wire::name_of(codec.format), codec.block,
                 trace.place_of(encoded), count, trace.place_of(to), dtype);
    },
    [](const zero::comm::wire::Codec& codec, const zero::comm::wire::Sources& sources,
       const zero::comm::ReduceGroups& groups, std::int64_t count, void* to, zero::DType dtype,
       zero::Stream) {
      Trace& trace = *of_this_rank;
      std::string sizes;
      for (const int ranks : groups.sizes) sizes += "," + std::to_string(ranks);
      trace.line("decode_sum", zero::comm::wire::name_of(codec.format), codec.block,
                 trace.place_of(sources.first), sources.stride, sources.count, sizes, count,
                 trace.place_of(to), dtype);
    }};

}  // namespace recording
