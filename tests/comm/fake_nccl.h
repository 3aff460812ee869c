// NCCL from the view of one rank's communicator, over the ranks as threads and host memory:
// collectives complete at once, joining and splitting take a few polls.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/bytes.h"
#include "comm/nccl/api.h"
#include "comm/reduce.h"
#include "comm/world.h"
#include "zero/base/error.h"

namespace zero::comm::testing {

class FakeEvent final : public Event {
 public:
  explicit FakeEvent(const std::atomic<bool>& complete) : complete_(complete) {}
  bool complete() const override { return complete_; }
  void synchronize() override {}

 private:
  const std::atomic<bool>& complete_;
};

class FakeNccl : public nccl::Api {
 public:
  explicit FakeNccl(Communicator& host) : host_(host) {}

  // Settings of tests.
  int number = 22809;
  std::atomic<bool> events_complete{true};
  std::atomic<bool> broken{false};        // an asynchronous error
  std::atomic<bool> abort_blocks{false};  // until reset
  std::atomic<int> aborts{0}, destroyed{0};
  int polls_to_join = 3;
  // Number of queries during a split by another thread than the splitting one.
  std::atomic<int> asked_beside_split{0};
  bool refuses_registration = false;
  bool refuses_sends = false;
  std::atomic<bool> split_blocks{false};     // until it is reset
  std::atomic<bool> progress_blocks{false};  // until it is reset
  std::atomic<int> asked{0};                 // the number of calls of progress()
  std::atomic<bool> splitting{false};        // a thread has called begin_split()
  int open_groups = 0;

  // The calls in order: "register deregister destroy ".
  std::string calls;
  std::int64_t registered = 0;  // bytes

  void attach_thread() override {}
  int version() override { return number; }
  nccl::Id make_id() override {
    nccl::Id id;
    id.fill(77);
    return id;
  }
  nccl::Handle begin_join(const nccl::Id& id, int size, int rank) override {
    if (id[15] != 77 || size != host_.size() || rank != host_.rank())
      throw Error("fake: joined with another's id, size or rank");
    polls_left_ = polls_to_join;
    return keep(host_.split(0, rank));
  }
  void begin_split(nccl::Handle parent, int color, int key) override {
    splitting = true;
    while (split_blocks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    polls_left_ = polls_to_join;
    splitter_ = std::this_thread::get_id();
    split_ = keep(of(parent).split(color, key));
  }
  nccl::Handle finish_split(nccl::Handle) override {
    if (polls_left_ > 0) throw Error("fake: taken before it was complete");
    splitter_ = std::thread::id();
    return split_;
  }
  nccl::Progress progress(nccl::Handle) override {
    ++asked;
    while (progress_blocks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (const std::thread::id splitter = splitter_;
        splitter != std::thread::id() && splitter != std::this_thread::get_id())
      ++asked_beside_split;
    if (broken) return nccl::Progress::failed;
    return polls_left_.fetch_sub(1) > 0 ? nccl::Progress::going_on : nccl::Progress::done;
  }
  std::pair<int, int> place(nccl::Handle handle) override {
    return {of(handle).rank(), of(handle).size()};
  }
  std::string last_error(nccl::Handle) override { return "fake: unhandled system error"; }
  void destroy(nccl::Handle) override {
    ++destroyed;
    calls += "destroy ";
  }
  void abort(nccl::Handle) override {
    ++aborts;
    while (abort_blocks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void* register_buffer(nccl::Handle, void* data, std::int64_t bytes) override {
    calls += "register ";
    if (refuses_registration) throw Error("fake: no registration");
    registered = bytes;
    return data;
  }
  void deregister_buffer(nccl::Handle, void*) override {
    calls += "deregister ";
    registered = 0;
  }

  void group_start() override {
    sends_.assign(static_cast<std::size_t>(host_.size()), {});
    receives_ = sends_;
    ++open_groups;
  }
  void group_end() override {
    --open_groups;
    if (group_ == nullptr) return;
    Communicator& all = *std::exchange(group_, nullptr);
    const auto ranks = static_cast<std::size_t>(all.size());
    std::vector<std::int64_t> own, table(ranks * ranks);
    for (std::size_t peer = 0; peer < ranks; ++peer)
      own.push_back(static_cast<std::int64_t>(sends_[peer].bytes));
    all.all_gather(own.data(), table.data(), all.size(), DType::int64);
    PairCounts counts(all.size());
    for (int from = 0; from < all.size(); ++from)
      for (int to = 0; to < all.size(); ++to)
        counts.add(from, to, table[static_cast<std::size_t>(from * all.size() + to)]);
    std::vector<std::byte> out(static_cast<std::size_t>(counts.sent(all.rank())) + 1);
    std::vector<std::byte> in(static_cast<std::size_t>(counts.received(all.rank())) + 1);
    for (int peer = 0; peer < all.size(); ++peer)
      if (const Piece& piece = sends_[static_cast<std::size_t>(peer)]; piece.bytes > 0)
        std::memcpy(out.data() + counts.first_sent(all.rank(), peer), piece.data, piece.bytes);
    all.all_to_all(out.data(), in.data(), counts, DType::uint8);
    for (int peer = 0; peer < all.size(); ++peer)
      if (const Piece& piece = receives_[static_cast<std::size_t>(peer)]; piece.bytes > 0)
        std::memcpy(piece.data, in.data() + counts.first_received(peer, all.rank()), piece.bytes);
  }
  void send(const nccl::Vector& v, int peer, const nccl::Target& to) override {
    note(sends_, const_cast<void*>(v.send), v, peer, to.communicator);
  }
  void receive(const nccl::Vector& v, int peer, const nccl::Target& to) override {
    note(receives_, v.recv, v, peer, to.communicator);
  }
  void all_gather(const nccl::Vector& v, const nccl::Target& to) override {
    of(to.communicator).all_gather(v.send, v.recv, v.count, v.dtype);
  }
  void reduce_scatter(const nccl::Vector& v, const nccl::Target& to) override {
    summing(to).reduce_scatter(v.send, v.recv, v.count, v.dtype);
  }
  void reduce(const nccl::Vector& v, int root, const nccl::Target& to) override {
    std::vector<std::byte> sum(v.count * size_of(v.dtype));
    copy_bytes(sum.data(), v.send, std::ssize(sum));
    summing(to).all_reduce(sum.data(), v.count, v.dtype);
    if (of(to.communicator).rank() == root) copy_bytes(v.recv, sum.data(), std::ssize(sum));
  }
  void all_reduce(const nccl::Vector& v, const nccl::Target& to) override {
    summing(to).all_reduce(v.recv, v.count, v.dtype);
  }
  void broadcast(const nccl::Vector& v, int root, const nccl::Target& to) override {
    of(to.communicator).broadcast(v.recv, v.count, v.dtype, root);
  }
  void ordered_sum(const cuda::OrderedSum& sum, Stream) override {
    std::vector<const void*> pointers;
    for (int s = 0; s < sum.source_count; ++s)
      pointers.push_back(at(sum.sources, s * sum.stride * size_of(sum.dtype)));
    comm::ordered_sum(pointers, sum.groups, sum.out, sum.count, sum.dtype);
  }
  void copy(void* to, const void* from, std::int64_t bytes, Stream) override {
    copy_bytes(to, from, bytes);
  }
  std::unique_ptr<Event> mark(Stream) override {
    return std::make_unique<FakeEvent>(events_complete);
  }

 private:
  struct Piece {
    void* data = nullptr;
    std::size_t bytes = 0;
  };

  nccl::Handle keep(std::unique_ptr<Communicator> made) {
    made_.push_back(std::move(made));
    return made_.back().get();
  }
  static Communicator& of(nccl::Handle handle) { return *static_cast<Communicator*>(handle); }
  Communicator& summing(const nccl::Target& to) {
    of(to.communicator).set_reduce_groups(host_.reduce_groups());
    return of(to.communicator);
  }
  void note(std::vector<Piece>& pieces, void* data, const nccl::Vector& v, int peer,
            nccl::Handle handle) {
    if (refuses_sends) throw Error("fake: no sends");
    if (open_groups != 1) throw Error("fake: sends and receives to all peers are in one group");
    group_ = &of(handle);
    pieces[peer] = {data, static_cast<std::size_t>(v.count * size_of(v.dtype))};
  }

  Communicator& host_;
  std::vector<std::unique_ptr<Communicator>> made_;
  nccl::Handle split_ = nullptr;
  std::atomic<std::thread::id> splitter_{};
  std::atomic<int> polls_left_{0};
  std::vector<Piece> sends_, receives_;
  Communicator* group_ = nullptr;
};

}  // namespace zero::comm::testing
