// The ranks as one engine calls them, or a program through its Runtime: every call carries the
// caller's own terms, so that engines which share a Runtime change neither the order of each
// other's sums nor each other's limits. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "zero/base/stream.h"

namespace zero::detail {

class RuntimeCore;

class Ranks {
 public:
  // The operation's calls go to the stream that it is given.
  using Transfer = std::function<void(comm::Communicator&, Stream)>;

  // With the terms of the Runtime's own communicator.
  explicit Ranks(RuntimeCore& runtime);
  ~Ranks();
  Ranks(const Ranks&) = delete;

  // The model-parallel group beside these ranks, which compute with the same parameters; null where
  // there is none. Its exchanges are on host buffers.
  Ranks* model_parallel() { return model_parallel_.get(); }
  // "rank", "model-parallel rank": for messages.
  const char* noun() const;

  const comm::Topology& topology() const { return topology_; }
  // Collective: the ranks of equal color, ordered by key, with communicators of their own and these
  // terms, but for the order of sums, which goes over all of them.
  std::unique_ptr<Ranks> split(std::string_view subject, int color, int key);
  // Of the calls that are made from now on; what was queued keeps its own.
  void set_terms(const comm::CallTerms& terms);
  void set_reduce_groups(const comm::ReduceGroups& groups) { terms_.reduce_groups = groups; }
  const comm::CallTerms& terms() const { return terms_; }

  // Queues an operation on device buffers, behind everything queued so far.
  void communicate(Transfer operation);
  // The same with the communicator of another part of the world too.
  using TransferOverTwo =
      std::function<void(comm::Communicator&, comm::Communicator& others, Stream)>;
  void communicate_with(Ranks& others, TransferOverTwo operation);
  // Queues an operation whose bytes count as control traffic.
  void communicate_control(Transfer operation);
  // An operation on host buffers; waits for it. Its bytes count as control traffic.
  void exchange(std::string_view subject,
                const std::function<void(comm::Communicator&)>& operation);
  // The same on device buffers; and with the communicator of another part of the world too.
  void exchange_on_device(std::string_view subject, const Transfer& operation);
  void exchange_with(Ranks& others, std::string_view subject, const TransferOverTwo& operation);
  // Every rank's words, in rank order.
  std::vector<std::int64_t> gather_words(std::string_view subject,
                                         const std::vector<std::int64_t>& own);
  // Every rank's text, of any bytes, in rank order.
  std::vector<std::string> gather_texts(std::string_view subject, std::string_view own);
  // Whether all ranks have the same text, by its hash.
  bool all_have(std::string_view subject, std::string_view text);
  // The bytes of one rank to all, and rank 0's text on every rank.
  void broadcast(std::string_view subject, std::span<std::byte> bytes, int root);
  std::string broadcast_text(std::string_view subject, std::string text);
  // Sent by the control traffic of this caller.
  std::int64_t control_bytes() const { return control_bytes_; }

 private:
  Ranks(RuntimeCore& runtime, comm::World& world);

  // For host buffers, and for device buffers.
  comm::Communicator& on_host() const { return host_ ? *host_ : world_.communicator(); }
  comm::Communicator& on_device() const;

  RuntimeCore& runtime_;
  comm::World& world_;
  std::unique_ptr<comm::Communicator> host_, device_;  // of a part of the world
  comm::Topology topology_;
  comm::CallTerms terms_;
  std::int64_t control_bytes_ = 0;
  std::unique_ptr<Ranks> model_parallel_;
};

std::int64_t total_bytes(const comm::Traffic& traffic);

}  // namespace zero::detail
