// Messages between CPU ranks of several hosts through torch's gloo, for ranks without MPI.
//
// A gloo message is complete only after a wait. Therefore two threads per peer wait for sent and
// for received messages, in order.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "zero/rendezvous.h"

namespace zero::pytorch {

// Makes a gloo group of those ranks, under a name that is used once. Collective.
using MakeGroup = std::function<c10::intrusive_ptr<c10d::Backend>(
    const std::string& name, int rank, int size, std::chrono::milliseconds limit)>;

class GlooLine;

class GlooMessages final : public Messages {
 public:
  GlooMessages(MakeGroup make_group, std::string name, int rank, int size,
               std::chrono::milliseconds limit);
  ~GlooMessages() override;

  std::string_view name() const override { return "gloo"; }
  std::unique_ptr<Pending> begin() override;
  std::unique_ptr<Messages> split(int color, int rank, int size) override;
  // Does nothing: the line's own end cancels messages that a broken job has left.
  void forsake() noexcept override {}

  // Returns the line of messages to or from a peer.
  GlooLine& line(int peer, bool receives);
  c10d::Backend& group() { return *group_; }

 private:
  MakeGroup make_group_;
  std::string name_;
  std::chrono::milliseconds limit_;
  c10::intrusive_ptr<c10d::Backend> group_;
  std::map<std::pair<int, bool>, std::unique_ptr<GlooLine>> lines_;
  int splits_ = 0;
};

}  // namespace zero::pytorch
