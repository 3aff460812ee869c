// Collectives over nodes: shared memory inside a node and messages between nodes, in chunks, so
// that the network carries one chunk while the node processes the next. If each rank counts as a
// node, this is a pairwise exchange of messages.
//
// Nodes send partial sums: these cross the network once per node instead of once per rank. A slice
// is sent to a node once. All ranks of a node send and receive: each exchanges a slice with a
// partner on every other node. Reading a peer's buffer in place needs a shared arena, as in the shm
// transport.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/bytes.h"
#include "comm/hierarchical/layout.h"
#include "comm/hierarchical/node_map.h"
#include "comm/hierarchical/requests.h"
#include "comm/shm/shm_communicator.h"
#include "comm/slices.h"

namespace zero::comm {

class HierarchicalCommunicator final : public HostCommunicator {
 public:
  // `node` is a communicator of the ranks of this node.
  HierarchicalCommunicator(Group group, std::shared_ptr<ControlPlane> plane,
                           std::unique_ptr<Messages> messages, RankPlaces places,
                           std::unique_ptr<ShmCommunicator> node);
  ~HierarchicalCommunicator() override;

  std::string_view transport() const override {
    return map_.nodes() == size() ? messages_->name() : "hierarchical";
  }
  void share(const Arena& arena) override;
  void withdraw(const Arena& arena) override { node_->withdraw(arena); }

 protected:
  std::unique_ptr<Communicator> form(const Subgroup& part) override;
  void entered() override;
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
  using Exposure = DirectCommunicator::Exposure;
  // Sent before the data, so that different calls are detected before any data is misread.
  using Header = PostedCall;
  // `header` must stay until finish() returns.
  void receive_header(Requests& requests, int from);
  void send_header(Requests& requests, const Header& header, int to);
  void exchange_headers(Requests& requests, const Header& header);
  // Waits until all requests are complete. With `own_header`, received headers must equal
  // `own_header`.
  void finish(Requests& requests, const Header* own_header = nullptr);

  void send(Requests& requests, const void* data, std::int64_t bytes, int to);
  // Runs chunk after chunk, so that a chunk is sent while the chunk before is processed:
  // post(chunk, in, out) posts the messages, meanwhile() runs while the first messages are in
  // transit, take(chunk, out) processes the received messages. `head` contains the requests of the
  // headers.
  using Post = std::function<void(std::int64_t, Requests& in, Requests& out)>;
  using Take = std::function<void(std::int64_t, Requests& out)>;
  void in_chunks(
      std::int64_t chunks, Requests& head, const Header& header, const Post& post, const Take& take,
      const std::function<void()>& meanwhile = [] {});

  [[noreturn]] void throw_late(const std::set<int>& late) const;
  Requests requests() const { return Requests(*messages_); }

  // A sum of slices in progress: the vector that peers read, and its chunk size.
  struct Reduction {
    const Layout& layout;
    const void* data;
    Exposure exposure;
    DType dtype;
    std::int64_t chunk;     // elements
    bool in_round = false;  // a round over buffers that are read in place stays open
    std::int64_t width() const { return size_of(dtype); }
    // This rank's values of a chunk.
    const std::byte* values(int target, std::int64_t index) const {
      return at(data, (layout.first(target) + index * chunk) * width());
    }
  };
  // Per rank of this node: the slices that the rank receives and passes on to the rest of the node.
  using Holdings = std::vector<std::vector<int>>;

  // The phases of all_reduce; reduce and gather are also the operations of that name.
  void reduce(const Call& call, const void* data, std::int64_t span, const Layout& layout,
              void* out, DType dtype);
  void gather(const Call& call, bool with_headers, void* recv, std::int64_t span,
              const Layout& layout, std::int64_t width);
  void reduce_small(const Call& call, void* data, DType dtype);

  // Writes this node's sums of chunk `index`, for each target, to the staging memory.
  void add_up(Reduction& work, std::int64_t index);
  void open_round(Reduction& work, std::int64_t first, std::int64_t n);
  void sum_item(Reduction& work, const SumPlan::Item& item, int target, Slice piece,
                std::int64_t offset, void* out);
  // Adds the sums of all nodes into `out`.
  void complete(const Reduction& work, std::int64_t index, void* out);
  // Copies these elements of the held slices to all ranks of the node.
  void pass_on(const Exposure& exposure, const Holdings& holdings, void* recv, const Layout& layout,
               Slice elements, std::int64_t width);
  void share_on_node(const Exposure& exposure, void* data, std::int64_t first, std::int64_t bytes,
                     int root);

  const SumPlan& plan();
  std::int64_t items_sent(int rank) const;
  std::int64_t staging_chunk_bytes() const;
  void prepare_staging();
  // The staging memory of a chunk's items: those sent to a client, and those received from a node.
  std::byte* outgoing(std::size_t client, std::int64_t index);
  std::byte* incoming(int node, std::int64_t index);

  int own_node() const { return map_.node(rank()); }
  const std::vector<int>& local_members() const { return map_.members(own_node()); }
  bool leads() const { return map_.local(rank()) == 0; }
  // Whether this is the node's only rank, whose values are then sent without a copy.
  bool alone() const { return local_members().size() == 1; }
  Exposure expose(const Call& call, const void* data, std::int64_t span,
                  std::int64_t exposed) const;
  void read_inside(std::int64_t bytes) { count_moved(false, bytes); }

  std::unique_ptr<Messages> messages_;
  RankPlaces places_;
  std::vector<Header> headers_;
  NodeMap map_;
  std::unique_ptr<ShmCommunicator> node_;
  std::vector<int> partners_;  // on the other nodes
  std::vector<int> clients_;
  std::vector<int> leaders_;         // by node
  std::vector<int> correspondents_;  // partners and clients, each once
  Holdings own_slices_, client_slices_;
  SumPlan plan_;
  std::int64_t staging_size_ = 0;  // of one item
  std::vector<std::byte> staging_;
  std::vector<std::byte> small_;  // items of all nodes in a small all_reduce
  std::vector<const void*> sources_;
};

// Collective over the ranks of `part`, a subgroup; the messages are those of the subgroup.
std::unique_ptr<Communicator> create_hierarchical_communicator(Mailboxes& mailboxes,
                                                               const Subgroup& part,
                                                               std::shared_ptr<ControlPlane> plane,
                                                               std::unique_ptr<Messages> messages,
                                                               const RankPlaces& places);

}  // namespace zero::comm
