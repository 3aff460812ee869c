#include "comm/nccl/nccl_communicator.h"

#include <thread>

#include "comm/bytes.h"
#include "comm/call.h"
#include "zero/base/error.h"

namespace zero::comm::nccl {

void await_progress(Api& api, Handle communicator, std::chrono::milliseconds limit,
                    const std::string& what, const std::function<void()>& check) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const Progress progress = api.progress(communicator);
    if (progress == Progress::done) return;
    if (progress == Progress::failed) throw Error(what + ": " + api.last_error(communicator));
    if (check) check();
    if (std::chrono::steady_clock::now() > deadline)
      throw StalledError(what + " took longer than " + duration_text(limit) +
                         "; NCCL_DEBUG=INFO shows what it waits for");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Connection::Connection(GuardOptions options, std::shared_ptr<Connection> parent)
    : options_(std::move(options)),
      parent_(std::move(parent)),
      guard_(std::make_unique<Guard>(options_)) {}

Connection::~Connection() {
  while (!registrations_.empty()) deregister_buffer(registrations_.begin()->first);
  const bool given_up = guard_->failed();
  guard_.reset();
  if (given_up) return;
  try {
    options_.api->destroy(options_.communicator);
  } catch (const std::exception&) {
    // The process continues without this communicator.
  }
}

void Connection::register_buffer(void* data, std::int64_t bytes) {
  const Guard::Inside inside(*guard_);
  registrations_[data] = api().register_buffer(handle(), data, bytes);
}

void Connection::deregister_buffer(void* data) noexcept {
  const auto found = registrations_.find(data);
  if (found == registrations_.end()) return;
  void* registration = found->second;
  registrations_.erase(found);
  try {
    const Guard::Inside inside(*guard_);
    api().deregister_buffer(handle(), registration);
  } catch (const std::exception&) {
    // The registration ends with the communicator.
  }
}

namespace {

// A call that ends on the host, under the guard's limit.
class Announced {
 public:
  Announced(Guard& guard, std::string what, std::chrono::milliseconds limit) : guard_(guard) {
    guard_.announce(std::move(what), limit);
  }
  ~Announced() { guard_.forget(); }
  Announced(const Announced&) = delete;

 private:
  Guard& guard_;
};

}  // namespace

NcclCommunicator::NcclCommunicator(int rank, int size, std::shared_ptr<Connection> connection)
    : Communicator(rank, size), connection_(std::move(connection)) {}

template <class Call>
void NcclCommunicator::launch(const Call& call) {
  Guard& guard = connection_->guard();
  guard.announce(describe(), time_limit());
  try {
    {
      const Guard::Inside inside(guard);
      call(connection_->api(), Target{connection_->handle(), stream()});
    }
    guard.launched(connection_->api().mark(stream()));
  } catch (...) {
    guard.forget();
    throw;
  }
}

void NcclCommunicator::exchange(const void* send, std::int64_t send_stride, void* recv,
                                std::int64_t recv_stride, std::int64_t count, DType dtype) {
  const std::int64_t width = size_of(dtype);
  launch([&](Api& api, const Target& to) {
    CallGroup group(api);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      api.send({at(send, peer * send_stride * width), nullptr, count, dtype}, peer, to);
      api.receive({nullptr, at(recv, peer * recv_stride * width), count, dtype}, peer, to);
    }
    group.end();
  });
  const std::byte* own = at(send, rank() * send_stride * width);
  std::byte* place = at(recv, rank() * recv_stride * width);
  if (own != place) connection_->api().copy(place, own, count * width, stream());
}

void NcclCommunicator::do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                                     std::int64_t stride) {
  if (stride != count) return exchange(send, 0, recv, stride, count, dtype);
  launch([&](Api& api, const Target& to) { api.all_gather({send, recv, count, dtype}, to); });
}

void NcclCommunicator::do_reduce_scatter(const void* send, void* recv, std::int64_t count,
                                         DType dtype, std::int64_t stride) {
  if (sums_in_order(dtype)) return reduce_in_order(send, recv, count, dtype, stride);
  launch([&](Api& api, const Target& to) {
    if (stride == count) return api.reduce_scatter({send, recv, count, dtype}, to);
    CallGroup group(api);
    for (int root = 0; root < size(); ++root)
      api.reduce({at(send, root * stride * size_of(dtype)), recv, count, dtype}, root, to);
    group.end();
  });
}

std::int64_t NcclCommunicator::staging_bytes(std::int64_t count, DType dtype) const {
  return sums_in_order(dtype) ? size() * count * size_of(dtype) : 0;
}

void NcclCommunicator::use_staging(void* memory, std::int64_t bytes) {
  staging_ = static_cast<std::byte*>(memory);
  staging_size_ = bytes;
}

void NcclCommunicator::reduce_in_order(const void* send, void* recv, std::int64_t count,
                                       DType dtype, std::int64_t stride) {
  if (staging_bytes(count, dtype) > staging_size_)
    throw UsageError(describe() + ": a sum in rank order needs " +
                     std::to_string(staging_bytes(count, dtype)) + " bytes of staging, there are " +
                     std::to_string(staging_size_));
  exchange(send, stride, staging_, count, count, dtype);
  connection_->api().ordered_sum({staging_, count, size(), reduce_groups(), recv, count, dtype},
                                 stream());
}

// In deterministic mode all_reduce would sum everything on every rank, so large gradients are
// reduced by reduce_scatter.
void NcclCommunicator::do_all_reduce(void* data, std::int64_t count, DType dtype) {
  if (sums_in_order(dtype)) return reduce_in_order(data, data, count, dtype, 0);
  launch([&](Api& api, const Target& to) { api.all_reduce({data, data, count, dtype}, to); });
}

void NcclCommunicator::do_broadcast(void* data, std::int64_t count, DType dtype, int root) {
  launch([&](Api& api, const Target& to) { api.broadcast({data, data, count, dtype}, root, to); });
}

void NcclCommunicator::do_all_to_all(const void* send, void* recv, const PairCounts& counts,
                                     DType dtype) {
  const std::int64_t width = size_of(dtype);
  const auto out = [&](int peer) { return at(send, counts.first_sent(rank(), peer) * width); };
  const auto in = [&](int peer) { return at(recv, counts.first_received(peer, rank()) * width); };
  launch([&](Api& api, const Target& to) {
    CallGroup group(api);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      api.send({out(peer), nullptr, counts(rank(), peer), dtype}, peer, to);
      api.receive({nullptr, in(peer), counts(peer, rank()), dtype}, peer, to);
    }
    group.end();
  });
  connection_->api().copy(in(rank()), out(rank()), counts(rank(), rank()) * width, stream());
}

// NCCL has no barrier, and on a stream there is nothing to wait for: use the host's communicator.
void NcclCommunicator::do_barrier() {
  throw UsageError("a barrier is the host's: device communicators order streams, not ranks");
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  Api& api = connection_->api();
  Guard& guard = connection_->guard();
  GuardOptions options = connection_->options();
  {
    // A blocking parent is split inside begin_split(): the guard looks after peers and the limit
    // meanwhile.
    std::unique_lock<std::mutex> alone;
    if (!options.blocking) alone = guard.asking_alone();
    const Announced announced(guard, "the split of an NCCL communicator", time_limit());
    const Guard::Inside inside(guard);
    api.begin_split(connection_->handle(), color, key);
    await_progress(api, connection_->handle(), time_limit(), "the split of an NCCL communicator",
                   options.check_peers);
    options.communicator = api.finish_split(connection_->handle());
  }
  options.blocking = true;
  const auto [part_rank, part_size] = api.place(options.communicator);
  auto part = std::make_unique<NcclCommunicator>(
      part_rank, part_size, std::make_shared<Connection>(std::move(options), connection_));
  part->set_time_limit(time_limit());
  return part;
}

void NcclCommunicator::share(const Arena& arena) {
  try {
    connection_->register_buffer(arena.data(), arena.size());
  } catch (const Error&) {
    connection_->guard().check();
    // Without a registration NCCL copies the data through internal buffers.
  }
}

void NcclCommunicator::withdraw(const Arena& arena) {
  connection_->deregister_buffer(arena.data());
}

}  // namespace zero::comm::nccl
