#include "comm/staged_communicator.h"

#include "comm/bytes.h"

namespace zero::comm {

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> host, Device& device)
    : Communicator(host->rank(), host->size()), host_(std::move(host)), device_(device) {}

Communicator& StagedCommunicator::host() {
  host_->set_subject(subject());
  host_->set_terms(terms());
  return *host_;
}

std::byte* StagedCommunicator::fetch(const void* data, std::int64_t bytes) {
  in_.resize(bytes);
  store(in_.data(), static_cast<const std::byte*>(data), bytes);
  return in_.data();
}

void StagedCommunicator::store(void* data, const std::byte* from, std::int64_t bytes) {
  if (bytes == 0) return;
  const auto on_stream = device_.borrow_stream(stream());
  // The memory here is not page-locked: without this wait, which has a limit, the copy itself would
  // wait.
  on_stream->synchronize();
  on_stream->enqueue([&](Stream native) { device_.copy(data, from, bytes, native); });
  on_stream->synchronize();
}

std::unique_ptr<Communicator> StagedCommunicator::split(int color, int key) {
  auto part = std::make_unique<StagedCommunicator>(host_->split(color, key), device_);
  part->set_time_limit(time_limit());
  return part;
}

// Elements between the slices do not belong to this call and must not be overwritten.
void StagedCommunicator::do_all_gather(const void* send, void* recv, std::int64_t count,
                                       DType dtype, std::int64_t stride) {
  const std::int64_t bytes = count * size_of(dtype);
  out_.resize(size() * bytes);
  host().all_gather(fetch(send, bytes), out_.data(), count, dtype);
  for (int peer = 0; peer < size(); ++peer)
    store(at(recv, peer * stride * size_of(dtype)), out_.data() + peer * bytes, bytes);
}

void StagedCommunicator::do_reduce_scatter(const void* send, void* recv, std::int64_t count,
                                           DType dtype, std::int64_t stride) {
  const std::int64_t bytes = count * size_of(dtype);
  out_.resize(bytes);
  const std::byte* all = fetch(send, (stride * (size() - 1) + count) * size_of(dtype));
  host().reduce_scatter(all, out_.data(), count, dtype, stride);
  store(recv, out_.data(), bytes);
}

void StagedCommunicator::do_all_reduce(void* data, std::int64_t count, DType dtype) {
  std::byte* staged = fetch(data, count * size_of(dtype));
  host().all_reduce(staged, count, dtype);
  store(data, staged, count * size_of(dtype));
}

void StagedCommunicator::do_broadcast(void* data, std::int64_t count, DType dtype, int root) {
  std::byte* staged = fetch(data, count * size_of(dtype));
  host().broadcast(staged, count, dtype, root);
  if (rank() != root) store(data, staged, count * size_of(dtype));
}

void StagedCommunicator::do_all_to_all(const void* send, void* recv, const PairCounts& counts,
                                       DType dtype) {
  const std::int64_t received = counts.received(rank()) * size_of(dtype);
  out_.resize(received);
  const std::byte* staged = fetch(send, counts.sent(rank()) * size_of(dtype));
  host().all_to_all(staged, out_.data(), counts, dtype);
  store(recv, out_.data(), received);
}

}  // namespace zero::comm
