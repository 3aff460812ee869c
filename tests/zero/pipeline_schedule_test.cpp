// Schedules of pipelines as lists: they run to their ends, keep as few micro batches as they say,
// and have the bubbles that their papers state.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "zero/plan/pipeline_schedule.h"

namespace {

using zero::detail::HalfPass;
using zero::detail::Model;
using zero::detail::Op;
using zero::detail::PipelineShape;
using zero::detail::room_of;
using zero::detail::RunLinks;
using zero::detail::timetable_of;

PipelineShape shape_of(const char* schedule, int chunks, int ranks, int micro_batches) {
  zero::PipelineOptions options;
  options.schedule = schedule;
  options.chunks = chunks;
  return {options, ranks, micro_batches};
}

// The lists of a model whose first trained run is this.
std::vector<std::vector<HalfPass>> lists_of(const PipelineShape& shape, int first_trained = 0) {
  const auto timetable = timetable_of(shape);
  std::vector<std::vector<HalfPass>> lists;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Model model;
    for (int run = rank; run < shape.runs(); run += shape.ranks) {
      const bool after = run + 1 < shape.runs();
      model.runs.push_back(
          {0, 1, RunLinks{run > 0, after, run > first_trained, after && run >= first_trained}});
    }
    lists.push_back(schedule_of(timetable, rank, model));
  }
  return lists;
}

}  // namespace

TEST_CASE("the lists of stages run to their ends, for any number of stages and micro batches") {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (int stages = 1; stages <= 8; ++stages)
      for (int micro_batches = 1; micro_batches <= 17; ++micro_batches)
        for (int first_trained = 0; first_trained < stages; ++first_trained) {
          const auto lists = lists_of(shape_of(schedule, 1, stages, micro_batches), first_trained);
          CAPTURE(schedule);
          CAPTURE(stages);
          CAPTURE(micro_batches);
          CHECK(find_schedule_fault(lists) == "");
          const int kept = std::string(schedule) == "gpipe" ? micro_batches : stages;
          const auto room = room_of(lists[0], 1).front();
          CHECK(room.kept == std::min(kept, micro_batches));
          CHECK(room.gradients == 1);
        }
}

TEST_CASE("so do the lists of stages with several runs") {
  for (const char* schedule : {"interleaved", "breadth_first"})
    for (int chunks = 2; chunks <= 4; ++chunks)
      for (int stages = 2; stages <= 6; ++stages)
        for (int micro_batches = 1; micro_batches <= 17; ++micro_batches)
          for (const int first_trained : {0, 1, stages, chunks * stages - 1}) {
            const PipelineShape shape = shape_of(schedule, chunks, stages, micro_batches);
            CAPTURE(schedule);
            CAPTURE(chunks);
            CAPTURE(stages);
            CAPTURE(micro_batches);
            CHECK(find_schedule_fault(lists_of(shape, first_trained)) == "");
          }
}

// The bubble is (p - 1) / (v m + p - 1) of p stages, v runs each and m micro batches: arXiv
// 2104.04473, section 2.2.
TEST_CASE("bubbles are those of the papers") {
  for (const auto& [schedule, most_chunks] :
       {std::pair{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 4}, {"breadth_first", 4}})
    for (int chunks = most_chunks == 1 ? 1 : 2; chunks <= most_chunks; ++chunks)
      for (int stages = 2; stages <= 8; ++stages)
        for (int groups = 1; groups <= 4; ++groups) {
          const PipelineShape shape = shape_of(schedule, chunks, stages, groups * stages);
          CAPTURE(schedule);
          CAPTURE(chunks);
          CAPTURE(stages);
          CAPTURE(shape.micro_batches);
          const double p = stages, work = chunks * shape.micro_batches;
          CHECK(timetable_of(shape).bubble() == doctest::Approx((p - 1) / (work + p - 1)));
        }
}

TEST_CASE("interleaved stages keep up to 5 / 3 as many micro batches as there are stages") {
  for (int chunks = 2; chunks <= 4; ++chunks)
    for (int stages = 2; stages <= 8; ++stages)
      for (int groups = 2; groups <= 4; ++groups) {
        const int micro_batches = groups * stages;
        const auto kept = [&](const char* schedule) {
          const auto lists = lists_of(shape_of(schedule, chunks, stages, micro_batches));
          int sum = 0;
          for (const auto& room : room_of(lists[0], chunks)) {
            CHECK(room.inputs <= room.kept + 1);
            sum += room.kept;
          }
          return sum;
        };
        CAPTURE(chunks);
        CAPTURE(stages);
        CHECK(kept("breadth_first") == chunks * micro_batches);
        CHECK(3 * kept("interleaved") <= 5 * chunks * stages);
      }
}

TEST_CASE("two entries of a list that change places are noticed") {
  const auto lists = lists_of(shape_of("1f1b", 1, 3, 5));
  for (const auto& all : {lists, lists_of(shape_of("interleaved", 2, 3, 6))}) {
    int noticed = 0, count = 0;
    for (std::size_t stage = 0; stage < all.size(); ++stage)
      for (std::size_t i = 0; i + 1 < all[stage].size(); ++i) {
        auto swapped = all;
        std::swap(swapped[stage][i], swapped[stage][i + 1]);
        noticed += find_schedule_fault(swapped) != "";
        ++count;
      }
    // A stage may also receive earlier, or send later, than it has to.
    CHECK(noticed >= count / 2);
  }
  auto early = lists;
  std::swap(early[2][0], early[2][1]);  // forward before the receive
  CHECK(find_schedule_fault(early) ==
        "forward of micro batch 0 in stage 2 comes before the receive");
  // Each of two stages waits for the other to take its transfer first.
  auto crossed = lists_of(shape_of("1f1b", 1, 2, 2));
  const auto at = [&](int stage, Op op) {
    return std::ranges::find(crossed[stage], op, &HalfPass::op) - crossed[stage].begin();
  };
  auto& list = crossed[0];
  const HalfPass gradient = list[at(0, Op::receive_gradient)];
  std::erase(list, gradient);
  list.insert(list.begin(), gradient);
  CHECK(find_schedule_fault(crossed).ends_with("waits for ever for the other stage"));
}
