// A group of one rank: copies if send and recv differ, and does nothing else.
#pragma once

#include "comm/bytes.h"
#include "comm/communicator.h"

namespace zero::comm {

class SelfCommunicator : public Communicator {
 public:
  SelfCommunicator() : Communicator(0, 1) {}

  std::string_view transport() const override { return "self"; }
  std::unique_ptr<Communicator> split(int, int) override {
    auto group = std::make_unique<SelfCommunicator>();
    group->set_time_limit(time_limit());
    return group;
  }

 protected:
  void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                     std::int64_t) override {
    copy_bytes(recv, send, count * size_of(dtype));
  }
  // The sum of one rank is the values themselves: nothing is rounded twice.
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                         std::int64_t) override {
    copy_bytes(recv, send, count * size_of(dtype));
  }
  void do_all_reduce(void*, std::int64_t, DType) override {}
  void do_broadcast(void*, std::int64_t, DType, int) override {}
  void do_all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype) override {
    copy_bytes(recv, send, counts(0, 0) * size_of(dtype));
  }
  void do_barrier() override {}
};

}  // namespace zero::comm
