// Device buffers over a host transport: every call waits for the stream, copies to the host, makes
// the host's call and copies back. Slow; for ranks as threads, which gain nothing from NCCL, and
// for tests without NCCL. Sums are the host's, in rank order.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "zero/base/device.h"

namespace zero::comm {

class StagedCommunicator final : public Communicator {
 public:
  // The device must outlive this object.
  StagedCommunicator(std::unique_ptr<Communicator> host, Device& device);

  std::string_view transport() const override { return "staged"; }
  std::unique_ptr<Communicator> split(int color, int key) override;

 protected:
  void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                     std::int64_t stride) override;
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                         std::int64_t stride) override;
  void do_all_reduce(void* data, std::int64_t count, DType dtype) override;
  void do_broadcast(void* data, std::int64_t count, DType dtype, int root) override;
  void do_all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype) override;
  void do_barrier() override { host().barrier(); }

 private:
  // Returns the host communicator, prepared for the current call.
  Communicator& host();
  std::byte* fetch(const void* data, std::int64_t bytes);
  void store(void* data, const std::byte* from, std::int64_t bytes);

  std::unique_ptr<Communicator> host_;
  Device& device_;
  std::vector<std::byte> in_, out_;
};

}  // namespace zero::comm
