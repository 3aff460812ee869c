#include "comm/host_communicator.h"

#include "comm/self/self_communicator.h"
#include "zero/base/error.h"

namespace zero::comm {

HostCommunicator::HostCommunicator(Group group, std::shared_ptr<ControlPlane> plane)
    : Communicator(group.rank, group.size()), group_(std::move(group)), plane_(std::move(plane)) {}

std::unique_ptr<Communicator> HostCommunicator::split(int color, int key) {
  const InternalCall internal(*this, Operation::all_gather, "the split of a group");
  std::vector<std::int64_t> all(size() * 2);
  const std::int64_t own[2] = {color, key};
  do_all_gather(own, all.data(), 2, DType::int64, 2);
  const Subgroup part = subgroup_of(group_, all);
  std::unique_ptr<Communicator> result = form(part);
  if (part.group.size() == 1) result = std::make_unique<SelfCommunicator>();
  result->set_time_limit(time_limit());
  left();
  return result;
}

Call HostCommunicator::call_of(DType dtype, std::int64_t count, int root) const {
  const bool sums =
      operation() == Operation::reduce_scatter || operation() == Operation::all_reduce;
  return {operation(), dtype, count, root, sums ? reduce_groups() : ReduceGroups()};
}

PostedCall HostCommunicator::posted(const Call& call) const {
  PostedCall posted{group_.world_rank(), call, sequence()};
  subject().copy(posted.subject, sizeof posted.subject - 1);
  return posted;
}

std::vector<FdMailbox::Name> HostCommunicator::exchange_names(const FdMailbox& own) {
  constexpr std::int64_t words = std::tuple_size_v<FdMailbox::Name>;
  std::vector<FdMailbox::Name> names(size());
  do_all_gather(own.name().data(), names.data(), words, DType::int64, words);
  return names;
}

void HostCommunicator::throw_stalled(const std::string& late) const {
  throw StalledError("rank " + std::to_string(group_.world_rank()) + " waited " +
                     duration_text(time_limit()) + " in " + describe() + ": " + late +
                     "; look at that rank, or raise the time limit if it is only slow");
}

}  // namespace zero::comm
