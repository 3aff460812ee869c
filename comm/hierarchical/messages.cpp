// What HierarchicalCommunicator sends between nodes: the header that goes ahead of the data, waits
// with a time limit, and counted payload. No call blocks inside MPI.
#include <cstring>

#include "comm/bytes.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/wait.h"

namespace zero::comm {

HierarchicalCommunicator::Header HierarchicalCommunicator::own_header(const Call& call) const {
  Header header;
  header.call = call.packed();
  header.count = call.count;
  header.sequence = sequence();
  const auto text = subject().substr(0, sizeof header.subject - 1);
  if (!text.empty()) std::memcpy(header.subject, text.data(), text.size());
  return header;
}

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

void HierarchicalCommunicator::check_header(const Header& theirs, const Header& own,
                                            int peer) const {
  if (theirs.call == own.call && theirs.count == own.count) return;
  const auto posted = [&](const Header& header, int r) {
    return PostedCall{world_rank_of(r), Call::unpack(header.call, header.count), header.sequence,
                      std::string(header.subject, strnlen(header.subject, sizeof header.subject))};
  };
  const PostedCall mine = posted(own, rank()), other = posted(theirs, peer);
  if (rank() < peer) throw_disagreement(mine, other);
  throw_disagreement(other, mine);
}

void HierarchicalCommunicator::await_headers(Requests& requests, const Header& own) {
  Wait wait(*plane(), time_limit(), Wait::Progress::polled);
  while (!requests.empty()) {
    for (const int peer : requests.test_received()) check_header(headers_[peer], own, peer);
    if (!requests.empty() && !wait.pause()) throw_late(requests.waiting_for());
  }
}

void HierarchicalCommunicator::finish(Requests& requests) {
  Wait wait(*plane(), time_limit(), Wait::Progress::polled);
  while (!requests.test())
    if (!wait.pause()) throw_late(requests.waiting_for());
}

void HierarchicalCommunicator::throw_late(const std::set<int>& late) const {
  std::string who;
  for (const int peer : late) {
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
  await_headers(head, header);
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

void HierarchicalCommunicator::barrier_over(std::span<const int> members, int own_place) {
  const Header header = own_header(call_of(DType::int64, 0));
  const int n = static_cast<int>(members.size());
  for (int distance = 1; distance < n; distance *= 2) {
    const auto member = [&](int place) { return members[(place + n) % n]; };
    Requests around = requests();
    receive_header(around, member(own_place - distance));
    send_header(around, header, member(own_place + distance));
    await_headers(around, header);
  }
}

}  // namespace zero::comm
