#include "comm/communicator.h"

#include "comm/call.h"
#include "comm/slices.h"
#include "zero/base/error.h"

namespace zero::comm {
namespace {

void require(bool good, Operation operation, const std::string& problem) {
  if (!good) throw UsageError(std::string(name_of(operation)) + ": " + problem);
}

void require_vector(Operation operation, const void* data, std::int64_t count) {
  require(count >= 0, operation, "the count is negative: " + std::to_string(count));
  require(data != nullptr || count == 0, operation, "a buffer is null");
}

std::int64_t checked_stride(Operation operation, std::int64_t stride, std::int64_t count) {
  if (stride == 0) return count;
  require(stride >= count, operation,
          "the stride " + std::to_string(stride) + " is below the count " + std::to_string(count));
  return stride;
}

// Returns true if `part` overlaps no slice of `whole`, or is exactly slice `own`.
bool apart_or_in_place(const void* part, const void* whole, std::int64_t bytes,
                       std::int64_t stride_bytes, int slices, int own) {
  const auto begin = reinterpret_cast<std::uintptr_t>(part);
  const auto length = static_cast<std::uintptr_t>(bytes);
  for (int r = 0; r < slices; ++r) {
    const auto slice = reinterpret_cast<std::uintptr_t>(whole) +
                       static_cast<std::uintptr_t>(stride_bytes) * static_cast<std::uintptr_t>(r);
    if (r == own && begin == slice) continue;
    if (begin < slice + length && slice < begin + length) return false;
  }
  return true;
}

}  // namespace

const char* name_of(Operation operation) {
  static constexpr const char* names[operation_count] = {
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all", "barrier"};
  return names[static_cast<int>(operation)];
}

Traffic& Traffic::add(const Traffic& other, int sign) {
  for (const auto counters : {&Traffic::calls, &Traffic::bytes_sent, &Traffic::bytes_between_nodes,
                              &Traffic::bytes_inside_node})
    for (int i = 0; i < operation_count; ++i) (this->*counters)[i] += sign * (other.*counters)[i];
  return *this;
}

void Communicator::set_terms(const CallTerms& terms) {
  set_reduce_groups(terms.reduce_groups);
  terms_.time_limit = terms.time_limit;
  terms_.deterministic = terms.deterministic;
  terms_.verify = terms.verify;
}

void Communicator::set_reduce_groups(const ReduceGroups& groups) {
  if (!groups.nested())
    throw UsageError(
        "reduce groups are nested: each has a multiple of the ranks of the one before");
  terms_.reduce_groups = groups.within(size_);
}

void Communicator::begin(Operation operation, std::int64_t bytes_sent, Stream stream) {
  operation_ = operation;
  stream_ = stream;
  ++sequence_;
  traffic_.calls[static_cast<int>(operation)] += 1;
  traffic_.bytes_sent[static_cast<int>(operation)] += bytes_sent;
  if (within_node()) count_moved(false, bytes_sent);
  entered();
}

void Communicator::count_moved(bool between_nodes, std::int64_t bytes) {
  if (internal_) return;
  auto& counters = between_nodes ? traffic_.bytes_between_nodes : traffic_.bytes_inside_node;
  counters[static_cast<int>(operation_)] += bytes;
}

void Communicator::act_for(const Communicator& other) {
  operation_ = other.operation_;
  subject_ = other.subject_;
  sequence_ = other.sequence_;
  terms_.time_limit = other.terms_.time_limit;
}

std::string Communicator::describe() const {
  return describe_call(operation_, subject_, sequence_);
}

Communicator::InternalCall::InternalCall(Communicator& communicator, Operation operation,
                                         std::string_view subject)
    : communicator_(communicator),
      operation_(communicator.operation_),
      subject_(communicator.subject_) {
  communicator.operation_ = operation;
  communicator.subject_ = subject;
  communicator.internal_ = true;
  communicator.entered();
}

Communicator::InternalCall::~InternalCall() {
  communicator_.operation_ = operation_;
  communicator_.subject_ = subject_;
  communicator_.internal_ = false;
}

std::int64_t Communicator::begin_slices(Operation operation, const Slices& slices) {
  const auto& [slice, whole, count, dtype, stride, stream] = slices;
  require_vector(operation, slice, count);
  require_vector(operation, whole, count);
  const std::int64_t checked = checked_stride(operation, stride, count);
  const std::int64_t bytes = count * size_of(dtype);
  const bool gathers = operation == Operation::all_gather;
  require(apart_or_in_place(slice, whole, bytes, checked * size_of(dtype), size_, rank_), operation,
          std::string(gathers ? "send overlaps recv" : "recv overlaps send") +
              ", and is not this rank's slice of it");
  begin(operation, (size_ - 1) * bytes, stream);
  return checked;
}

void Communicator::all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                              std::int64_t stride, Stream stream) {
  stride = begin_slices(Operation::all_gather, {send, recv, count, dtype, stride, stream});
  do_all_gather(send, recv, count, dtype, stride);
  if (verifies()) verify_all_gather(send, recv, count * size_of(dtype), stride * size_of(dtype));
  left();
}

void Communicator::reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                                  std::int64_t stride, Stream stream) {
  require(dtype != DType::uint8, Operation::reduce_scatter, "bytes have no sum");
  stride = begin_slices(Operation::reduce_scatter, {recv, send, count, dtype, stride, stream});
  if (verifies())
    verified_sum(send, stride, recv, count, dtype);
  else
    do_reduce_scatter(send, recv, count, dtype, stride);
  left();
}

void Communicator::all_reduce(void* data, std::int64_t count, DType dtype, Stream stream) {
  require(dtype != DType::uint8, Operation::all_reduce, "bytes have no sum");
  require_vector(Operation::all_reduce, data, count);
  const std::int64_t own = slice_of(count, size_, rank_).count;
  begin(Operation::all_reduce, (count - own + (size_ - 1) * own) * size_of(dtype), stream);
  if (verifies())
    verified_sum(data, 0, data, count, dtype);
  else
    do_all_reduce(data, count, dtype);
  left();
}

void Communicator::broadcast(void* data, std::int64_t count, DType dtype, int root, Stream stream) {
  constexpr auto operation = Operation::broadcast;
  require_vector(operation, data, count);
  require(root >= 0 && root < size_, operation,
          "the root is rank " + std::to_string(root) + " in a group of " + std::to_string(size_));
  begin(operation, rank_ == root ? (size_ - 1) * count * size_of(dtype) : 0, stream);
  do_broadcast(data, count, dtype, root);
  if (verifies()) verify_broadcast(data, count * size_of(dtype), root);
  left();
}

void Communicator::all_to_all(const void* send, void* recv, std::int64_t count, DType dtype,
                              Stream stream) {
  all_to_all(send, recv, PairCounts::equal(size_, count), dtype, stream);
}

void Communicator::all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype,
                              Stream stream) {
  constexpr auto operation = Operation::all_to_all;
  require(counts.ranks() == size_, operation,
          "the counts are of " + std::to_string(counts.ranks()) + " ranks, the group has " +
              std::to_string(size_));
  require(counts.least() >= 0, operation,
          "the count is negative: " + std::to_string(counts.least()));
  const std::int64_t sent = counts.sent(rank_), received = counts.received(rank_);
  require_vector(operation, send, sent);
  require_vector(operation, recv, received);
  const auto* out = static_cast<const std::byte*>(send);
  const auto* in = static_cast<const std::byte*>(recv);
  require(out + sent * size_of(dtype) <= in || in + received * size_of(dtype) <= out, operation,
          "send overlaps recv; it does not work in place");
  begin(operation, (sent - counts(rank_, rank_)) * size_of(dtype), stream);
  do_all_to_all(send, recv, counts, dtype);
  if (verifies()) verify_all_to_all(send, recv, counts, size_of(dtype));
  left();
}

void Communicator::barrier(Stream stream) {
  begin(Operation::barrier, 0, stream);
  do_barrier();
  left();
}

}  // namespace zero::comm
