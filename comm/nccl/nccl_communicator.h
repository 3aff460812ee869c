// NCCL's collectives on device buffers. Calls launch into the given stream and return; an error is
// thrown by a later call or by check(), or ends the process. Call from one thread at a time.
//
// Sums: in deterministic mode an all-to-all followed by the ordered sum that comm/communicator.h
// promises; otherwise NCCL's own sums, which are equal from run to run on equal hosts with equal
// settings, and round to the wire dtype at each hop.
#pragma once

#include <map>

#include "comm/communicator.h"
#include "comm/nccl/guard.h"

namespace zero::comm::nccl {

// A communicator of NCCL and the memory registered there. The destructor destroys both,
// registrations first, unless the guard had to give up the communicator.
class Connection {
 public:
  Connection(GuardOptions options, std::shared_ptr<Connection> parent);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Api& api() { return *options_.api; }
  Handle handle() const { return options_.communicator; }
  Guard& guard() { return *guard_; }
  const GuardOptions& options() const { return options_; }

  // Throws Error if NCCL refuses.
  void register_buffer(void* data, std::int64_t bytes);
  // Does nothing if the buffer is not registered.
  void deregister_buffer(void* data) noexcept;

 private:
  GuardOptions options_;
  std::map<void*, void*> registrations_;  // by address
  std::shared_ptr<Connection> parent_;
  std::unique_ptr<Guard> guard_;
};

// Waits for a non-blocking call to end. Throws StalledError or Error with `what`, or any error of
// `check`.
void await_progress(Api& api, Handle communicator, std::chrono::milliseconds limit,
                    const std::string& what, const std::function<void()>& check = {});

class NcclCommunicator final : public Communicator {
 public:
  // split() makes subgroups of the connection's parent.
  NcclCommunicator(int rank, int size, std::shared_ptr<Connection> connection);

  std::string_view transport() const override { return "nccl"; }
  std::unique_ptr<Communicator> split(int color, int key) override;
  void share(const Arena& arena) override;
  void withdraw(const Arena& arena) override;
  void check() override { connection_->guard().check(); }

  std::int64_t staging_bytes(std::int64_t count, DType dtype) const override;
  void use_staging(void* memory, std::int64_t bytes) override;

 protected:
  bool within_node() const override { return false; }
  void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                     std::int64_t stride) override;
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                         std::int64_t stride) override;
  void do_all_reduce(void* data, std::int64_t count, DType dtype) override;
  void do_broadcast(void* data, std::int64_t count, DType dtype, int root) override;
  void do_all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype) override;
  void do_barrier() override;

 private:
  template <class Call>
  void launch(const Call& call);
  // Sends slice r of `send` to rank r, and receives slice r of `recv` from there. Strides are in
  // elements; 0: the same slice for all.
  void exchange(const void* send, std::int64_t send_stride, void* recv, std::int64_t recv_stride,
                std::int64_t count, DType dtype);
  void reduce_in_order(const void* send, void* recv, std::int64_t count, DType dtype,
                       std::int64_t stride);
  bool sums_in_order(DType dtype) const { return terms().deterministic && dtype != DType::int64; }

  std::shared_ptr<Connection> connection_;
  std::byte* staging_ = nullptr;
  std::int64_t staging_size_ = 0;
};

}  // namespace zero::comm::nccl
