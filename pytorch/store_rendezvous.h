// Ranks that torchrun or another launcher of PyTorch has started meet through a torch store.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>

#include "pytorch/gloo_messages.h"
#include "zero/rendezvous.h"

namespace zero::pytorch {

class StoreRendezvous final : public Rendezvous {
 public:
  // The store's keys must belong to this job only. `place`: the store's address, for messages.
  // Throws TopologyError if another process has registered as this rank.
  StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string place,
                  MakeGroup make_group);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, std::chrono::milliseconds limit) override;
  std::unique_ptr<Messages> connect(const std::string& name,
                                    std::chrono::milliseconds limit) override;
  std::string describe() const override { return place_; }

 private:
  [[noreturn]] void throw_broken(const c10::Error& error) const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_, size_;
  std::string place_;
  MakeGroup make_group_;
};

}  // namespace zero::pytorch
