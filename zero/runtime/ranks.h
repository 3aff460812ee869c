// The ranks as used by an engine, or by a program through a Runtime: every call carries the
// caller's own terms, so that engines that share a Runtime change neither the order of each other's
// sums nor each other's limits. One thread.
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
  // The operation must queue all calls on the given stream.
  using Transfer = std::function<void(comm::Communicator&, Stream)>;

  // All ranks, with the terms of the Runtime's own communicator.
  explicit Ranks(RuntimeCore& runtime);
  // The same ranks, with terms of their own from here on, and a count of their own. Both use the
  // same communicators.
  Ranks(const Ranks& others);

  // "rank", "data rank", "tensor rank": for messages.
  const char* noun() const { return noun_; }

  const comm::Topology& topology() const { return topology_; }
  // Collective: returns the ranks of equal color, ordered by key, with separate communicators and
  // these terms, except for the order of sums: that spans the whole part.
  std::unique_ptr<Ranks> split(std::string_view subject, int color, int key);
  // Collective: completes the topology of a part, whose nodes are not known before, and sets the
  // noun.
  void place_on_nodes(const char* noun);
  // Applies to later calls; queued calls keep the former terms.
  void set_terms(const comm::CallTerms& terms) { terms_ = terms; }
  void set_reduce_groups(const comm::ReduceGroups& groups) { terms_.reduce_groups = groups; }
  const comm::CallTerms& terms() const { return terms_; }

  // Queues an operation on device buffers, after everything queued so far.
  void communicate(Transfer operation);
  // Queues an operation that also uses the communicator of another part of the world.
  using TransferOverTwo =
      std::function<void(comm::Communicator&, comm::Communicator& others, Stream)>;
  void communicate_with(Ranks& others, TransferOverTwo operation);
  // Queues an operation as control traffic.
  void communicate_control(Transfer operation);
  // Runs an operation on host buffers, and waits. The bytes count as control traffic.
  void exchange(std::string_view subject,
                const std::function<void(comm::Communicator&)>& operation);
  // The same on device buffers; and also with the communicator of another part of the world.
  void exchange_on_device(std::string_view subject, const Transfer& operation);
  void exchange_with(Ranks& others, std::string_view subject, const TransferOverTwo& operation);
  // Returns every rank's words, in rank order.
  std::vector<std::int64_t> gather_words(std::string_view subject,
                                         const std::vector<std::int64_t>& own);
  // Returns every rank's text, of any bytes, in rank order.
  std::vector<std::string> gather_texts(std::string_view subject, std::string_view own);
  // Whether all ranks have the same text, by hash.
  bool all_have(std::string_view subject, std::string_view text);
  // Sends the root's bytes to all ranks; returns rank 0's text on every rank.
  void broadcast(std::string_view subject, std::span<std::byte> bytes, int root);
  std::string broadcast_text(std::string_view subject, std::string text);
  // Bytes sent as control traffic of this caller.
  std::int64_t control_bytes() const { return control_bytes_; }

 private:
  // The communicators for host buffers, and for device buffers.
  comm::Communicator& on_host() const;
  comm::Communicator& on_device() const;

  RuntimeCore& runtime_;
  std::shared_ptr<comm::Communicator> host_, device_;  // for a part of the world
  comm::Topology topology_;
  const char* noun_ = "rank";
  comm::CallTerms terms_;
  std::int64_t control_bytes_ = 0;
};

std::int64_t total_bytes(const comm::Traffic& traffic);

}  // namespace zero::detail
