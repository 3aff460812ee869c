// The messages of HierarchicalCommunicator between nodes: headers before the data, waits with a
// time limit, and counted payload. No call blocks inside MPI.
#include "comm/bytes.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/wait.h"
#include "zero/base/run_marks.h"

namespace zero::comm {

void HierarchicalCommunicator::receive_header(Requests& requests, int from) {
  requests.receive(&headers_[from], sizeof(Header), from, tag_header);
}

void HierarchicalCommunicator::send_header(Requests& requests, const Header& header, int to) {
  requests.send(&header, sizeof header, to, tag_header);
}

void HierarchicalCommunicator::exchange_headers(Requests& requests, const Header& header) {
  for (const int peer : correspondents_) {
    receive_header(requests, peer);
    send_header(requests, header, peer);
  }
}

void HierarchicalCommunicator::finish(Requests& requests, const Header* own_header) {
  Wait wait(*plane(), time_limit(), Wait::Progress::polled);
  while (!requests.empty()) {
    for (const int peer : requests.test_received()) {
      if (own_header == nullptr || headers_[peer].call == own_header->call) continue;
      if (rank() < peer) throw_disagreement(*own_header, headers_[peer]);
      throw_disagreement(headers_[peer], *own_header);
    }
    if (!requests.empty() && !wait.pause()) throw_late(requests.waiting_for());
  }
}

void HierarchicalCommunicator::throw_late(const std::set<int>& late) const {
  std::string who;
  for (const int peer : late) {
    mark("late", world_rank_of(peer));
    who += who.empty() ? "" : "; ";
    who += "nothing came from rank " + std::to_string(world_rank_of(peer)) + ", " +
           plane()->last_call(world_rank_of(peer));
  }
  throw_stalled(who);
}

void HierarchicalCommunicator::send(Requests& requests, const void* data, std::int64_t bytes,
                                    int to) {
  const auto node = [&](int r) { return places_.node_of[world_rank_of(r)]; };
  count_moved(node(to) != node(rank()), bytes);
  requests.send(data, bytes, to, tag_data);
}

void HierarchicalCommunicator::in_chunks(std::int64_t chunks, Requests& head, const Header& header,
                                         const Post& post, const Take& take,
                                         const std::function<void()>& meanwhile) {
  Requests in[2] = {requests(), requests()}, out[2] = {requests(), requests()};
  if (chunks > 0) post(0, in[0], out[0]);
  finish(head, &header);
  meanwhile();
  for (std::int64_t index = 0; index < chunks; ++index) {
    const std::int64_t next = index + 1;
    if (next < chunks) post(next, in[next % 2], out[next % 2]);
    finish(in[index % 2]);
    take(index, out[index % 2]);
  }
  finish(out[0]);
  finish(out[1]);
}

}  // namespace zero::comm
