#include "zero/plan/pipeline_schedule.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <stdexcept>
#include <utility>

namespace zero::detail {

namespace {

// The order in which a rank computes.
std::vector<HalfPass> computation_of(const PipelineShape& shape, int rank) {
  const int count = shape.micro_batches, chunks = shape.chunks, ranks = shape.ranks;
  const bool interleaved = shape.schedule == "interleaved";
  // The micro batches of a group pass through a run before the rank turns to the next run. Groups
  // smaller than the number of ranks would wait for each other.
  const int groups = interleaved ? std::max(1, count / ranks) : 1;
  std::vector<HalfPass> forward, backward;
  for (int group = 0; group < groups; ++group)
    for (int run = 0; run < chunks; ++run)
      for (int m = count * group / groups; m < count * (group + 1) / groups; ++m) {
        forward.push_back({Op::forward, m, run});
        backward.push_back({Op::backward, m, chunks - 1 - run});
      }
  // Halves that come before the first backward; then both alternate.
  int ahead = count * chunks;
  if (shape.schedule == "1f1b") ahead = ranks - rank;
  if (interleaved)
    ahead = 2 * (ranks - rank - 1) + (chunks - 1) * ((count + groups - 1) / groups) + 1;
  std::vector<HalfPass> all;
  auto next = forward.begin();
  for (; next != forward.end() && ahead > 0; --ahead) all.push_back(*next++);
  for (const HalfPass& half : backward) {
    all.push_back(half);
    if (next != forward.end()) all.push_back(*next++);
  }
  return all;
}

// All ranks while they work through a step. An activation is received as soon as it is there, up to
// one more than the receiver computes with; a gradient always.
class TimetableMaker {
 public:
  TimetableMaker(const PipelineShape& shape, const std::vector<RunTimes>& times)
      : shape_(shape), ranks_(shape.ranks), runs_(shape.runs()) {
    for (std::size_t run = 0; run < times.size(); ++run) runs_[run].times = times[run];
    table_.lists.resize(shape.ranks);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      ranks_[rank].computation = computation_of(shape, rank);
      const std::vector<RunRoom> room = room_of(ranks_[rank].computation, shape.chunks);
      for (int run = 0; run < shape.chunks; ++run)
        runs_[run * shape.ranks + rank].room = room[run].kept + 1;
    }
  }

  Timetable make() {
    for (int run = 0; run < std::ssize(runs_); ++run) consider(run);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      waiting_.erase({event.kind, event.of});
      event.kind == Kind::computation ? compute(event) : transfer(event);
    }
    for (const Rank& rank : ranks_)
      if (rank.next < rank.computation.size())
        throw std::logic_error("pipeline: the schedule " + shape_.schedule + " waits for ever");
    return std::move(table_);
  }

 private:
  struct Rank {
    std::vector<HalfPass> computation;
    std::size_t next = 0;
    double free_at = 0;
  };
  // Has the times at which work of a run was complete, by micro batch.
  struct Run {
    int room = 1;
    RunTimes times = {};
    std::vector<double> forward, backward, received, gradient_received, gradient_sent;
  };
  // The next activation or gradient that a run sends, or the next computation of a rank. Of events
  // of equal time transfers come first, since they free memory.
  enum class Kind : std::uint8_t { activation, gradient, computation };
  struct Event {
    double time = 0;
    Kind kind{};
    int of = 0;  // the run, or the rank

    auto operator<=>(const Event&) const = default;
  };

  int rank_of(int run) const { return run % shape_.ranks; }

  void add(Kind kind, int of, double time) {
    if (waiting_.insert({kind, of}).second) events_.push({time, kind, of});
  }

  // Adds what has become possible by an event of the run.
  void consider(int changed) {
    for (int run = changed - 1; run <= changed + 1; ++run) {
      if (run < 0 || run >= std::ssize(runs_)) continue;
      consider_computation(rank_of(run));
      if (run + 1 < std::ssize(runs_)) consider_send(run);
      if (run > 0) consider_gradient(run);
    }
  }

  void consider_computation(int number) {
    const Rank& rank = ranks_[number];
    if (rank.next == rank.computation.size()) return;
    const HalfPass& half = rank.computation[rank.next];
    const int run = half.run * shape_.ranks + number;
    const Run& own = runs_[run];
    double time = rank.free_at;
    const auto needs = [&](const std::vector<double>& done, int micro_batch) {
      if (micro_batch >= std::ssize(done)) return false;
      if (micro_batch >= 0) time = std::max(time, done[micro_batch]);
      return true;
    };
    const bool forward = half.op == Op::forward, last = run + 1 == std::ssize(runs_);
    // A run that is only a fused unit has no scopes in forward, which wait for nothing.
    const bool received =
        run == 0 || (forward && own.times.forward == 0) || needs(own.received, half.micro_batch);
    const bool possible =
        received && (forward || ((last || needs(own.gradient_received, half.micro_batch)) &&
                                 (run == 0 || needs(own.gradient_sent, half.micro_batch - 1))));
    if (possible) add(Kind::computation, number, time);
  }

  void consider_send(int run) {
    const Run &own = runs_[run], &next = runs_[run + 1];
    const auto micro_batch = std::ssize(next.received), freed = micro_batch - next.room;
    if (micro_batch == std::ssize(own.forward) || freed >= std::ssize(next.backward)) return;
    add(Kind::activation, run,
        std::max(own.forward[micro_batch], freed < 0 ? 0 : next.backward[freed]));
  }

  void consider_gradient(int run) {
    const Run& own = runs_[run];
    const auto micro_batch = std::ssize(own.gradient_sent);
    if (micro_batch < std::ssize(own.backward)) add(Kind::gradient, run, own.backward[micro_batch]);
  }

  void compute(const Event& event) {
    Rank& rank = ranks_[event.of];
    const HalfPass half = rank.computation[rank.next++];
    const int run = half.run * shape_.ranks + event.of;
    const bool forward = half.op == Op::forward;
    const double takes = forward ? runs_[run].times.forward : runs_[run].times.backward;
    rank.free_at = event.time + takes;
    table_.work += takes;
    table_.end = std::max(table_.end, rank.free_at);
    (forward ? runs_[run].forward : runs_[run].backward).push_back(rank.free_at);
    table_.lists[event.of].push_back(half);
    consider(run);
  }

  void transfer(const Event& event) {
    const bool forward = event.kind == Kind::activation;
    const int peer = event.of + (forward ? 1 : -1);
    std::vector<double>& received = forward ? runs_[peer].received : runs_[peer].gradient_received;
    const auto micro_batch = static_cast<int>(std::ssize(received));
    received.push_back(event.time);
    if (!forward) runs_[event.of].gradient_sent.push_back(event.time);
    list(event.of, {forward ? Op::send : Op::send_gradient, micro_batch});
    list(peer, {forward ? Op::receive : Op::receive_gradient, micro_batch});
    consider(event.of);
    consider(peer);
  }

  void list(int run, HalfPass half) {
    half.run = run / shape_.ranks;
    table_.lists[rank_of(run)].push_back(half);
  }

  const PipelineShape shape_;
  std::vector<Rank> ranks_;
  std::vector<Run> runs_;  // of all ranks
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::set<std::pair<Kind, int>> waiting_;  // events_, without their times
  Timetable table_;
};

}  // namespace

std::string chunks_problem(const PipelineOptions& options) {
  if (options.schedule == "best") return "";
  const bool several = options.schedule == "interleaved" || options.schedule == "breadth_first";
  if (several == (options.chunks > 1)) return "";
  return "zero_core.pipeline.chunks is " + std::to_string(options.chunks) + " with the schedule " +
         options.schedule +
         (several ? ", which needs 2 or more: give each stage several runs of units"
                  : ", which has one run of units for each stage: choose interleaved or "
                    "breadth_first, or leave chunks out");
}

Timetable timetable_of(const PipelineShape& shape, const std::vector<RunTimes>& times) {
  return TimetableMaker(shape, times).make();
}

std::vector<HalfPass> schedule_of(const Timetable& timetable, int rank, const Model& model) {
  std::vector<HalfPass> list = timetable.lists[rank];
  std::erase_if(list, [&](const HalfPass& half) {
    const RunLinks links = model.run(half.run).links;
    return (half.op == Op::receive && !links.before) || (half.op == Op::send && !links.after) ||
           (half.op == Op::receive_gradient && !links.gradient_after) ||
           (half.op == Op::send_gradient && !links.gradient_before);
  });
  return list;
}

std::vector<RunRoom> room_of(const std::vector<HalfPass>& schedule, int runs) {
  struct Held {
    std::set<int> kept, inputs, gradients;
  };
  std::vector<Held> held(runs);
  std::vector<RunRoom> room(runs);
  for (const auto& [op, micro_batch, run] : schedule) {
    auto& [kept, inputs, gradients] = held[run];
    if (op == Op::receive) inputs.insert(micro_batch);
    if (op == Op::forward) kept.insert(micro_batch);
    if (op == Op::receive_gradient) gradients.insert(micro_batch);
    room[run].kept = std::max(room[run].kept, static_cast<int>(std::ssize(kept)));
    room[run].inputs = std::max(room[run].inputs, static_cast<int>(std::ssize(inputs)));
    room[run].gradients = std::max(room[run].gradients, static_cast<int>(std::ssize(gradients)));
    if (op == Op::backward)
      for (std::set<int>* each : {&kept, &inputs, &gradients}) each->erase(micro_batch);
  }
  return room;
}

namespace {

// The lists of all ranks while they run.
class Rehearsal {
 public:
  explicit Rehearsal(const std::vector<std::vector<HalfPass>>& lists)
      : lists_(lists), next_(lists.size(), 0), present_(lists.size()), listed_(lists.size()) {
    for (std::size_t r = 0; r < lists.size(); ++r)
      for (const HalfPass& half : lists[r]) listed_[r].insert({half.op, half.run});
  }

  std::string run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (int r = 0; r < std::ssize(lists_); ++r)
        while (const HalfPass* half = next_of(r)) {
          const std::string fault = problem(r, *half);
          if (!fault.empty()) return fault;
          if (!take(r, *half)) break;
          moves = true;
        }
    }
    for (int r = 0; r < std::ssize(lists_); ++r)
      if (const HalfPass* half = next_of(r))
        return text(r, *half) + " waits for ever for the other stage";
    return "";
  }

 private:
  const HalfPass* next_of(int rank) const {
    return next_[rank] < lists_[rank].size() ? &lists_[rank][next_[rank]] : nullptr;
  }
  static std::string text(int rank, const HalfPass& half) {
    return std::string(name_of(half.op)) + " of micro batch " + std::to_string(half.micro_batch) +
           " in stage " + std::to_string(rank) +
           (half.run > 0 ? ", run " + std::to_string(half.run) : "");
  }

  // Each work needs what comes before it, if the list has such work at all.
  std::string problem(int rank, const HalfPass& half) const {
    const auto lacks = [&](Op before) {
      return listed_[rank].contains({before, half.run}) &&
             !present_[rank].contains({before, half.micro_batch, half.run});
    };
    Op before{};
    if (half.op == Op::forward) before = Op::receive;
    if (half.op == Op::send) before = Op::forward;
    if (half.op == Op::backward) before = lacks(Op::forward) ? Op::forward : Op::receive_gradient;
    if (half.op == Op::send_gradient) before = Op::backward;
    const bool needs = half.op != Op::receive && half.op != Op::receive_gradient;
    if (needs && lacks(before)) return text(rank, half) + " comes before the " + name_of(before);
    if (half.op == Op::backward && half.micro_batch > 0 &&
        !present_[rank].contains({Op::backward, half.micro_batch - 1, half.run}))
      return text(rank, half) + " comes before that of the micro batch before";
    return "";
  }

  // The other side of a transfer: the rank, and its own work.
  std::optional<std::pair<int, HalfPass>> peer_of(int rank, const HalfPass& half) const {
    const auto ranks = static_cast<int>(lists_.size());
    const int run = half.run * ranks + rank;
    const auto peer = [&](Op op, int other) {
      return std::pair(other % ranks, HalfPass{op, half.micro_batch, other / ranks});
    };
    if (half.op == Op::receive) return peer(Op::send, run - 1);
    if (half.op == Op::send) return peer(Op::receive, run + 1);
    if (half.op == Op::receive_gradient) return peer(Op::send_gradient, run + 1);
    if (half.op == Op::send_gradient) return peer(Op::receive_gradient, run - 1);
    return std::nullopt;
  }

  // Whether the work took place. A transfer needs the neighbor, whose own next work it is.
  bool take(int rank, const HalfPass& half) {
    if (const auto peer = peer_of(rank, half)) {
      const HalfPass* other = next_of(peer->first);
      if (other == nullptr || *other != peer->second) return false;
      present_[peer->first].insert(*other);
      ++next_[peer->first];
    }
    present_[rank].insert(half);
    ++next_[rank];
    return true;
  }

  const std::vector<std::vector<HalfPass>>& lists_;
  std::vector<std::size_t> next_;                     // per rank: the work that comes next
  std::vector<std::set<HalfPass>> present_;           // per rank: work that took place
  std::vector<std::set<std::pair<Op, int>>> listed_;  // per rank: what each run has at all
};

}  // namespace

std::string find_schedule_fault(const std::vector<std::vector<HalfPass>>& lists) {
  return Rehearsal(lists).run();
}

}  // namespace zero::detail
