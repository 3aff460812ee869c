// A group of one rank: copies where send and recv differ, and nothing else.
#pragma once

#include "comm/communicator.h"

namespace zero::comm {

class SelfCommunicator : public Communicator {
 public:
  SelfCommunicator() : Communicator(0, 1) {}

  std::string_view transport() const override { return "self"; }
  std::unique_ptr<Communicator> split(int color, int key) override;

 protected:
  void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                     std::int64_t stride) override;
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                         std::int64_t stride) override;
  void do_all_reduce(void*, std::int64_t, DType) override {}
  void do_broadcast(void*, std::int64_t, DType, int) override {}
  void do_all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype) override;
  void do_barrier() override {}
};

}  // namespace zero::comm
