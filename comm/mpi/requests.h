// Messages by MPI.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "comm/mpi/native.h"
#include "zero/base/messages.h"

namespace zero::comm {

class MpiPending final : public Pending {
 public:
  explicit MpiPending(MPI_Comm comm) : comm_(comm) {}
  ~MpiPending() override { cancel(); }
  MpiPending(const MpiPending&) = delete;
  MpiPending& operator=(const MpiPending&) = delete;

  void send(const void* data, std::int64_t bytes, int to, int tag) override;
  void receive(void* data, std::int64_t bytes, int from, int tag) override;
  // True when all are complete.
  bool test();
  std::vector<int> test_received() override;
  bool empty() const override { return requests_.empty(); }
  std::set<int> waiting_for() const override;

 private:
  struct Message {
    int peer;
    bool receives;
  };

  void cancel() noexcept;

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // of the requests
};

class MpiMessages final : public Messages {
 public:
  explicit MpiMessages(UniqueComm comm) : comm_(std::move(comm)) {}

  std::string_view name() const override { return "mpi"; }
  std::unique_ptr<Pending> begin() override { return std::make_unique<MpiPending>(comm_.get()); }
  void poll() override;
  std::unique_ptr<Messages> split(int color, int rank, int size) override;
  void forsake() noexcept override { comm_.forget(); }

 private:
  UniqueComm comm_;
};

}  // namespace zero::comm
